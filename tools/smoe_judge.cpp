// smoe-judge: scores a model's answers to AlpacaEval 2 or Arena-Hard by a judge.
#include <signal.h>

#include <CLI/CLI.hpp>

#include "command_line.h"
#include "smoe/core/error.h"
#include "smoe/core/log.h"
#include "smoe/core/tool.h"
#include "smoe/eval/judged_benchmarks.h"

namespace {

// Finished, but some judgements are invalid and count for nothing.
constexpr int kIncompleteExitCode = 6;

struct Arguments {
  std::string benchmark;
  std::string bootstrap_unit = "battle";
  smoe::JudgedBenchmarkOptions options;
};

void add_files(CLI::App& app, Arguments& arguments) {
  smoe::JudgedBenchmarkOptions& options = arguments.options;
  app.add_option("benchmark", arguments.benchmark, "alpaca_eval_2 or arena_hard")->required();
  app.add_option("--outputs", options.outputs, "the model's answers, in the benchmark's own format")
      ->required();
  app.add_option("--data", options.data, "folder with alpaca_eval/ and arena_hard/")->required();
  app.add_option("--out", options.out, "folder for results; a killed run continues there")->required();
  app.add_option("--judgements", options.judgements,
                 "score these annotations (AlpacaEval) or judgements (Arena-Hard) instead of asking a judge");
  app.add_option("--baseline", options.baseline, "answers to compare with; default: the benchmark's");
  app.add_option("--judge-prompt", options.judge_prompt, "settings of the judge; default: the benchmark's");
  app.add_option("--limit", options.limit, "first N rows of the benchmark; 0: all")->capture_default_str();
  app.add_flag("--allow-missing", options.allow_missing, "judge what is there where answers are missing");
}

void add_endpoint(CLI::App& app, smoe::JudgedBenchmarkOptions& options) {
  smoe::JudgeEndpoint& endpoint = options.endpoint;
  app.add_option("--base-url", endpoint.base_url,
                 "OpenAI-compatible endpoint, e.g. https://api.openai.com/v1");
  app.add_option("--judge-model", endpoint.model, "default: the model that the benchmark prescribes");
  app.add_option("--api-key-env", endpoint.api_key_variable,
                 "environment variable that holds the key; default: no key is sent");
  app.add_option("--concurrency", endpoint.concurrency, "requests in flight at once")->capture_default_str();
  app.add_option("--max-attempts", endpoint.max_attempts, "attempts of a request")->capture_default_str();
  app.add_option("--request-timeout", endpoint.request_timeout_s, "seconds to wait for an answer")
      ->capture_default_str();
  app.add_option("--first-delay", endpoint.first_delay_s,
                 "seconds before the second attempt; doubles with each further one")
      ->capture_default_str();
  app.add_option("--max-tokens-field", options.max_tokens_field,
                 "name of the limit in a request; newer endpoints want max_completion_tokens")
      ->capture_default_str();
  app.add_option("--prompt-price", endpoint.prompt_price, "price of a million prompt tokens");
  app.add_option("--completion-price", endpoint.completion_price, "price of a million completion tokens");
}

void add_scoring(CLI::App& app, Arguments& arguments) {
  smoe::JudgedBenchmarkOptions& options = arguments.options;
  app.add_option("--seed", options.seed, "alpaca_eval_2: of the order of the two answers")
      ->capture_default_str();
  app.add_option("--difficulty", options.difficulty_file,
                 "alpaca_eval_2: the published instruction_difficulty.csv");
  app.add_option("--gamed", options.gamed_file, "alpaca_eval_2: the published df_gamed.csv");
  app.add_option("--bootstrap-rounds", options.bootstrap.rounds, "arena_hard")->capture_default_str();
  app.add_option("--bootstrap-seed", options.bootstrap.seed, "arena_hard")->capture_default_str();
  app.add_option("--bootstrap-unit", arguments.bootstrap_unit,
                 "arena_hard: battle (as published) or question (wider)")
      ->capture_default_str();
}

int run(Arguments& arguments) {
  const bool is_alpaca = arguments.benchmark == "alpaca_eval_2";
  SMOE_CHECK(ConfigError, is_alpaca || arguments.benchmark == "arena_hard",
             "unknown benchmark {}; allowed are alpaca_eval_2 and arena_hard", arguments.benchmark);
  const auto unit = smoe::enum_from_name<smoe::BootstrapUnit>(arguments.bootstrap_unit);
  SMOE_CHECK(ConfigError, unit.has_value(), "--bootstrap-unit {}; allowed are battle and question",
             arguments.bootstrap_unit);
  arguments.options.bootstrap_unit = *unit;
  const smoe::JudgedBenchmark result =
      is_alpaca ? smoe::judge_alpaca_eval(arguments.options) : smoe::judge_arena_hard(arguments.options);
  fmt::print("{}", result.terminal_table);
  SPDLOG_INFO("wrote {}", (arguments.options.out / "results.json").string());
  if (result.num_invalid == 0) return 0;
  const std::filesystem::path reasons =
      !arguments.options.judgements.empty()
          ? arguments.options.judgements
          : arguments.options.out / (is_alpaca ? "annotations.json" : "judgements.jsonl");
  fmt::print(stderr, "incomplete: {} judgements are invalid and count for nothing; see {}\n",
             result.num_invalid, reasons.string());
  return kIncompleteExitCode;
}

}  // namespace

int main(int argc, char** argv) {
  // A server that closes a connection must not end the program.
  ::signal(SIGPIPE, SIG_IGN);
  CLI::App app("Scores a model's answers to AlpacaEval 2 or Arena-Hard by a judge.");
  Arguments arguments;
  add_files(app, arguments);
  add_endpoint(app, arguments.options);
  add_scoring(app, arguments);
  if (const auto status = smoe::parse_command_line(app, argc, argv)) return *status;
  return smoe::run_tool([&] { return run(arguments); });
}
