// smoe-import: checkpoints out of other models. `huggingface` takes a folder of transformers; `upcycle` makes
// the start of a MoE model out of a dense checkpoint.
#include <CLI/CLI.hpp>

#include "command_line.h"
#include "smoe/core/tool.h"
#include "smoe/interchange/command_line.h"
#include "smoe/interchange/huggingface.h"
#include "smoe/interchange/upcycle.h"

namespace {

struct Arguments {
  std::filesystem::path source, out, config;
  std::string dtype = "stored";
  std::string max_shard_size = "0";
  std::string method = "split";
  std::string order = "index";
  std::vector<std::string> overrides;
  smoe::HuggingFaceImportOptions huggingface;
  smoe::UpcycleOptions upcycle;
};

CLI::App* add_huggingface(CLI::App& app, Arguments& arguments) {
  CLI::App* command = app.add_subcommand(
      "huggingface", "a folder of transformers: Llama, Mistral, Qwen3, Mixtral, Qwen3-MoE");
  command->add_option("folder", arguments.source, "folder with config.json and safetensors")->required();
  command->add_option("out,--out", arguments.out, "checkpoint folder to write; must not exist")->required();
  command->add_option("--dtype", arguments.dtype, smoe::kDtypeHelp)->capture_default_str();
  command->add_option("--max-shard-size", arguments.max_shard_size, smoe::kShardSizeHelp)
      ->capture_default_str();
  command->add_option("--tokenizer", arguments.huggingface.tokenizer,
                      "tokenizer.json or .model, instead of the folder's");
  command->add_option("--chat-template", arguments.huggingface.chat_template,
                      "chat template (YAML), instead of the folder's");
  command->add_option("--ignore-config-key", arguments.huggingface.ignored_keys,
                      "unknown key of config.json that does not change what the model computes; repeatable");
  return command;
}

CLI::App* add_upcycle(CLI::App& app, Arguments& arguments) {
  CLI::App* command =
      app.add_subcommand("upcycle", "a dense checkpoint as the start of a stepped_moe or vanilla_moe");
  command->add_option("checkpoint", arguments.source, "dense checkpoint or run folder")->required();
  command->add_option("out,--out", arguments.out, "checkpoint folder to write; must not exist")->required();
  command->add_option("--config", arguments.config, "YAML whose model section describes the new model")
      ->required()
      ->check(CLI::ExistingFile);
  command->add_option("--set", arguments.overrides, "override of a key, for example model.num_experts=16");
  command->add_option("--method", arguments.method, "split the feed-forward into experts, or copy it")
      ->capture_default_str()
      ->check(CLI::IsMember({"split", "copy"}));
  command
      ->add_option("--order", arguments.order,
                   "split: hidden units by index, or the largest by norm to the shared expert")
      ->capture_default_str()
      ->check(CLI::IsMember({"index", "norm"}));
  command->add_option("--budget", arguments.upcycle.budget,
                      "copy: the budget that equals the dense model; default: the largest");
  command
      ->add_option("--noise", arguments.upcycle.noise,
                   "copy: normal noise on the routed experts, as a share of each tensor's deviation")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--seed", arguments.upcycle.seed, "of noise and router")->capture_default_str();
  return command;
}

smoe::InterchangeSummary run_huggingface(Arguments& arguments) {
  arguments.huggingface.dtype = smoe::parse_dtype(arguments.dtype);
  arguments.huggingface.max_shard_bytes = smoe::parse_shard_size(arguments.max_shard_size);
  return smoe::import_huggingface(arguments.source, arguments.out, arguments.huggingface);
}

smoe::InterchangeSummary run_upcycle(Arguments& arguments) {
  arguments.upcycle.method = smoe::enum_from_name<smoe::UpcycleMethod>(arguments.method).value();
  arguments.upcycle.order = smoe::enum_from_name<smoe::UnitOrder>(arguments.order).value();
  const smoe::ModelConfig target = smoe::read_model_config({arguments.config, arguments.overrides});
  return smoe::upcycle_checkpoint(arguments.source, arguments.out, target, arguments.upcycle);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Makes checkpoints out of other models.");
  app.require_subcommand(1);
  Arguments arguments;
  const CLI::App* huggingface = add_huggingface(app, arguments);
  add_upcycle(app, arguments);
  if (const auto status = smoe::parse_command_line(app, argc, argv)) return *status;
  return smoe::run_tool([&] {
    const smoe::InterchangeSummary summary =
        huggingface->parsed() ? run_huggingface(arguments) : run_upcycle(arguments);
    fmt::print("{}", smoe::describe_summary(arguments.out, summary));
    return 0;
  });
}
