// smoe-params: parameters, FLOPs and memory of a config, without allocating the model.
#include <CLI/CLI.hpp>

#include "command_line.h"
#include "smoe/core/tool.h"
#include "smoe/model/parameter_report.h"

int main(int argc, char** argv) {
  CLI::App app("Counts the parameters, FLOPs and memory of a model without allocating it.");
  smoe::ConfigSource source;
  smoe::ParameterReportOptions options;
  std::vector<std::string> targets;
  std::string counting = "non_embedding";
  bool json = false;
  app.add_option("config", source.file, "YAML of a training run (its model section) or of a model alone")
      ->required();
  app.add_option("--set", source.overrides, "override, spelled as in the file: --set model.dim=512")
      ->take_all()
      ->expected(1);
  app.add_option("--sequence-length", options.sequence_length,
                 "tokens a sequence, for the FLOPs of attention")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  std::string train_tokens;
  app.add_option("--train-tokens", train_tokens,
                 "tokens of a training, for example 1T: adds its FLOPs at every budget, exact and as 6 N T");
  app.add_option("--solve", targets,
                 "active size, for example 3B: prints the k (dense: the FFN width) that reaches it")
      ->take_all()
      ->expected(1);
  app.add_option("--counting", counting, "what an active size counts")
      ->capture_default_str()
      ->check(CLI::IsMember({"non_embedding", "with_embedding"}));
  app.add_option("--world-size", options.world_size,
                 "processes of a shard group: memory of each under every distributed.zero_stage")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_flag("--json", json, "exact numbers as JSON");
  if (const auto status = smoe::parse_command_line(app, argc, argv)) return *status;

  return smoe::run_tool([&] {
    options.title = source.file.string();
    options.counting = smoe::enum_from_name<smoe::CountingRule>(counting).value();
    if (!train_tokens.empty()) options.train_tokens = smoe::parse_count(train_tokens);
    for (const std::string& target : targets) {
      options.targets.push_back(smoe::parse_count(target));
    }
    const smoe::ModelConfig config = smoe::read_model_config(source);
    fmt::print("{}", json ? smoe::parameter_report_json(config, options)
                          : smoe::parameter_report_text(config, options));
    return 0;
  });
}
