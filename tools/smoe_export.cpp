// smoe-export: a checkpoint in other forms. `huggingface` writes a folder for transformers; `streaming`
// writes a package whose experts are read from disk one by one; `verify` reads all of a package and compares
// it with its checksums.
#include <CLI/CLI.hpp>

#include "command_line.h"
#include "smoe/core/tool.h"
#include "smoe/infer/streaming_export.h"
#include "smoe/infer/streaming_package.h"
#include "smoe/interchange/command_line.h"
#include "smoe/interchange/huggingface.h"

namespace {

constexpr double kMebibyte = 1024.0 * 1024.0;

struct Arguments {
  std::filesystem::path checkpoint, out, folder;
  std::string encoding = "bf16";
  std::string dtype = "stored";
  std::string max_shard_size = "5GB";
  smoe::HuggingFaceExportOptions huggingface;
};

int export_streaming(const Arguments& arguments) {
  const auto summary =
      smoe::export_streaming_package(arguments.checkpoint, arguments.out,
                                     smoe::enum_from_name<smoe::ExpertEncoding>(arguments.encoding).value());
  fmt::print("wrote {}: {} experts of {:.3f} MiB ({}), {:.1f} MiB; resident part {:.1f} MiB\n",
             arguments.out.string(), summary.num_experts,
             static_cast<double>(summary.block_bytes) / kMebibyte, arguments.encoding,
             static_cast<double>(summary.experts_bytes) / kMebibyte,
             static_cast<double>(summary.resident_bytes) / kMebibyte);
  return 0;
}

int verify(const std::filesystem::path& folder) {
  const smoe::StreamingPackage package(folder);
  package.verify_files();
  package.verify_experts();
  fmt::print("{}: complete and undamaged, {} experts\n", folder.string(),
             package.num_moe_layers() * package.num_experts());
  return 0;
}

int export_huggingface(Arguments& arguments) {
  arguments.huggingface.dtype = smoe::parse_dtype(arguments.dtype);
  arguments.huggingface.max_shard_bytes = smoe::parse_shard_size(arguments.max_shard_size);
  const auto summary = smoe::export_huggingface(arguments.checkpoint, arguments.out, arguments.huggingface);
  fmt::print("{}", smoe::describe_summary(arguments.out, summary));
  return 0;
}

CLI::App* add_streaming(CLI::App& app, Arguments& arguments) {
  CLI::App* command = app.add_subcommand("streaming", "a package whose experts are read from disk");
  command->add_option("--checkpoint", arguments.checkpoint, "checkpoint or run folder")->required();
  command->add_option("--out", arguments.out, "folder of the package; must not exist")->required();
  command->add_option("--dtype", arguments.encoding, "how experts are stored; int8 has one scale a row")
      ->capture_default_str()
      ->check(CLI::IsMember({"fp32", "bf16", "int8"}));
  return command;
}

CLI::App* add_huggingface(CLI::App& app, Arguments& arguments) {
  CLI::App* command =
      app.add_subcommand("huggingface", "a folder for transformers: dense and vanilla_moe models");
  command->add_option("checkpoint,--checkpoint", arguments.checkpoint, "checkpoint or run folder")
      ->required();
  command->add_option("out,--out", arguments.out, "folder to write; must not exist")->required();
  command->add_option("--dtype", arguments.dtype, smoe::kDtypeHelp)->capture_default_str();
  command->add_option("--max-shard-size", arguments.max_shard_size, smoe::kShardSizeHelp)
      ->capture_default_str();
  command->add_option("--budget", arguments.huggingface.budget,
                      "name or k of the exported budget (vanilla_moe with several)");
  command
      ->add_option("--max-positions", arguments.huggingface.max_positions,
                   "max_position_embeddings; default: the sequence length of training")
      ->check(CLI::PositiveNumber);
  return command;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Writes checkpoints in other forms.");
  app.require_subcommand(1);
  Arguments arguments;
  const CLI::App* huggingface = add_huggingface(app, arguments);
  const CLI::App* streaming = add_streaming(app, arguments);
  CLI::App* verifying = app.add_subcommand("verify", "compares all of a package with its checksums");
  verifying->add_option("package", arguments.folder, "folder of the package")->required();
  if (const auto status = smoe::parse_command_line(app, argc, argv)) return *status;
  return smoe::run_tool([&] {
    if (huggingface->parsed()) return export_huggingface(arguments);
    return streaming->parsed() ? export_streaming(arguments) : verify(arguments.folder);
  });
}
