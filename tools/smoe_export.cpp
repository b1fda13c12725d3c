// smoe-export: a checkpoint in other forms. `streaming` writes a package whose experts are read from disk one
// by one; `verify` reads all of a package and compares it with its checksums.
#include <CLI/CLI.hpp>

#include "smoe/core/tool.h"
#include "smoe/infer/streaming_export.h"
#include "smoe/infer/streaming_package.h"

namespace {

constexpr double kMebibyte = 1024.0 * 1024.0;

int export_streaming(const std::filesystem::path& checkpoint, const std::filesystem::path& out,
                     const std::string& encoding) {
  const auto summary = smoe::export_streaming_package(
      checkpoint, out, smoe::enum_from_name<smoe::ExpertEncoding>(encoding).value());
  fmt::print("wrote {}: {} experts of {:.3f} MiB ({}), {:.1f} MiB; resident part {:.1f} MiB\n", out.string(),
             summary.num_experts, static_cast<double>(summary.block_bytes) / kMebibyte, encoding,
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

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Writes checkpoints in other forms.");
  app.require_subcommand(1);
  std::filesystem::path checkpoint, out, folder;
  std::string dtype = "bf16";
  CLI::App* streaming = app.add_subcommand("streaming", "a package whose experts are read from disk");
  streaming->add_option("--checkpoint", checkpoint, "checkpoint or run folder")->required();
  streaming->add_option("--out", out, "folder of the package; must not exist")->required();
  streaming->add_option("--dtype", dtype, "how experts are stored; int8 has one scale a row")
      ->capture_default_str()
      ->check(CLI::IsMember({"fp32", "bf16", "int8"}));
  CLI::App* verifying = app.add_subcommand("verify", "compares all of a package with its checksums");
  verifying->add_option("package", folder, "folder of the package")->required();
  CLI11_PARSE(app, argc, argv);
  return smoe::run_tool(
      [&] { return streaming->parsed() ? export_streaming(checkpoint, out, dtype) : verify(folder); });
}
