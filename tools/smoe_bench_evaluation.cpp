// smoe-bench eval: scoring benchmarks beside a plain script.
#include <fmt/format.h>

#include <memory>

#include "smoe/bench/bench_config.h"
#include "smoe/bench/evaluation_bench.h"
#include "smoe/core/files.h"
#include "smoe/eval/task_library.h"
#include "smoe/model/device.h"
#include "smoe_bench_commands.h"

namespace {

struct Arguments {
  smoe::ConfigSource config;
  smoe::EvaluationBenchOptions options;
  std::vector<std::string> tasks = {"arc_easy", "hellaswag", "winogrande", "lambada_openai"};
  std::filesystem::path task_folder = smoe::TaskLibrary::default_folder();
  int64_t threads = 0;
  std::filesystem::path json;
};

int run(const Arguments& arguments) {
  smoe::set_num_threads(arguments.threads);
  smoe::EvaluationBenchOptions options = arguments.options;
  options.model = smoe::read_config<smoe::BenchConfig>(arguments.config).model;
  options.tasks = smoe::TaskLibrary(arguments.task_folder).select(arguments.tasks).tasks;
  const smoe::EvaluationBenchReport report = smoe::run_evaluation_bench(options);
  fmt::print("{}", smoe::evaluation_bench_table(report));
  if (!arguments.json.empty()) {
    smoe::write_file_atomically(arguments.json, smoe::speed_json_lines(report.speed));
  }
  return 0;
}

}  // namespace

BenchCommand add_evaluation_bench(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("eval", "scoring benchmarks beside a plain script in padded batches");
  const auto arguments = std::make_shared<Arguments>();
  smoe::EvaluationBenchOptions& options = arguments->options;
  command
      ->add_option("config", arguments->config.file,
                   "YAML with `model` and `bench` (not used): configs/bench/tiny.yaml")
      ->required();
  command->add_option("--set", arguments->config.overrides, "override: --set model.dim=512")
      ->take_all()
      ->expected(1);
  command->add_option("--tokenizer", options.tokenizer, "SentencePiece .model or Hugging Face tokenizer.json")
      ->required();
  command
      ->add_option("--data", options.data_folder, "folder with one folder a benchmark: examples/benchmarks")
      ->required();
  command->add_option("--tasks", arguments->tasks, "tasks and groups, separated by commas")
      ->capture_default_str()
      ->delimiter(',');
  command->add_option("--task-folder", arguments->task_folder, "folder with tasks/*.yaml and groups/*.yaml")
      ->capture_default_str();
  command
      ->add_option("--num-fewshot", options.num_shots,
                   "solved rows before each question; default: the task's")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--limit", options.limit, "first rows of each task; 0: all")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command->add_option("--batch-tokens", options.batch_tokens, "tokens of a batch of the evaluator")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--naive-rows", options.naive_rows, "rows of a batch of the plain script")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--repetitions", options.repetitions, "measured turns")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--threads", arguments->threads, "computing threads; default: all cores");
  command->add_option("--json", arguments->json, "also write one JSON object a row to this file");
  return {command, [arguments] { return run(*arguments); }};
}
