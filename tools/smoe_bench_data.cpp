// smoe-bench data: text to tokens, and stored tokens to rows of training.
#include <fmt/format.h>

#include <memory>

#include "smoe/bench/data_bench.h"
#include "smoe/bench/training_bench.h"
#include "smoe/core/available_cores.h"
#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/model/device.h"
#include "smoe_bench_commands.h"

namespace {

struct Arguments {
  smoe::TokenizingBenchOptions tokenizing;
  smoe::LoadingBenchOptions loading;
  std::filesystem::path training;  // config of a step that consumes the rows
  int64_t repetitions = 5;
  std::filesystem::path json;
};

std::string tokenize(const Arguments& arguments) {
  smoe::TokenizingBenchOptions options = arguments.tokenizing;
  options.repetitions = arguments.repetitions;
  const smoe::SpeedReport report = smoe::run_tokenizing_bench(options);
  fmt::print("{}", smoe::data_table(report));
  return smoe::speed_json_lines(report);
}

std::string load(const Arguments& arguments) {
  smoe::LoadingBenchOptions options = arguments.loading;
  options.repetitions = arguments.repetitions;
  const smoe::SpeedReport loading = smoe::run_loading_bench(options);
  fmt::print("{}", smoe::data_table(loading));
  std::string lines = smoe::speed_json_lines(loading);
  if (arguments.training.empty()) return lines;
  smoe::SpeedOptions step;
  step.config = smoe::read_config<smoe::BenchConfig>({arguments.training, {}});
  step.repetitions = arguments.repetitions;
  step.stock.clear();
  const smoe::SpeedReport training = smoe::run_train_bench(step);
  const smoe::LoadingShare share = smoe::loading_share(loading, training);
  fmt::print("A step of {} consumes {:.0f} unique tokens a core-second; reading them takes {:.4f} % of it.\n",
             arguments.training.string(), share.training_tokens_per_core_s, 100 * share.share());
  return lines + smoe::speed_json_lines(training);
}

int run(const Arguments& arguments) {
  const bool tokenizes = !arguments.tokenizing.tokenizers.empty();
  const bool loads = !arguments.loading.work_folder.empty();
  SMOE_CHECK(ConfigError, tokenizes || loads,
             "nothing to measure; name text with --input and tokenizers with --tokenizer, or a folder for "
             "token stores with --work-folder");
  std::string lines;
  if (tokenizes) lines += tokenize(arguments);
  if (loads) lines += load(arguments);
  if (!arguments.json.empty()) smoe::write_file_atomically(arguments.json, lines);
  return 0;
}

}  // namespace

BenchCommand add_data_bench(CLI::App& app) {
  CLI::App* command = app.add_subcommand("data", "text to tokens, and stored tokens to rows of training");
  const auto arguments = std::make_shared<Arguments>();
  smoe::TokenizingBenchOptions& tokenizing = arguments->tokenizing;
  smoe::LoadingBenchOptions& loading = arguments->loading;
  tokenizing.threads = {1};
  if (smoe::available_cores() > 1) tokenizing.threads.push_back(smoe::available_cores());
  CLI::Option* input = command->add_option("--input", tokenizing.inputs, "text files: .jsonl or .txt");
  command
      ->add_option("--tokenizer", tokenizing.tokenizers,
                   "SentencePiece .model or Hugging Face tokenizer.json; several are measured in turns")
      ->needs(input);
  input->needs("--tokenizer");
  command->add_option("--text-key", tokenizing.text_key, "JSON key of the text")->capture_default_str();
  command->add_option("--threads", tokenizing.threads, "threads that tokenize")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--work-folder", loading.work_folder,
                      "measure loading from token stores written to this folder");
  command->add_option("--store-tokens", loading.store_tokens, "tokens of these stores")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--sequence-length", loading.sequence_length, "tokens a row")
      ->capture_default_str()
      ->check(CLI::Range(2, 1 << 24));
  command->add_option("--rows", loading.rows_per_step, "rows a step")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--steps", loading.steps, "steps a repetition")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--training", arguments->training,
                   "also a training step of this configs/bench/*.yaml, on all cores")
      ->needs("--work-folder");
  command->add_option("--repetitions", arguments->repetitions, "measured turns")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--json", arguments->json, "also write one JSON object a row to this file");
  return {command, [arguments] { return run(*arguments); }};
}
