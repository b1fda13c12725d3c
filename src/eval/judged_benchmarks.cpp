#include "smoe/eval/judged_benchmarks.h"

#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "eval/judge_report.h"
#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/core/tool.h"

namespace smoe {
namespace {

// Before files are read, whose reader does not know which option names them.
void check_readable(const std::filesystem::path& file, const std::string& remedy) {
  SMOE_CHECK(DataError, ::access(file.c_str(), R_OK) == 0, "{}: cannot open the file: {}. {}", file.string(),
             std::generic_category().message(errno), remedy);
}

// A file of the benchmark, or the one that `option` names instead.
std::filesystem::path benchmark_file(const std::filesystem::path& chosen, const std::string& option,
                                     const std::filesystem::path& standard) {
  if (!chosen.empty()) {
    check_readable(chosen, fmt::format("Give {} a file that can be read.", option));
    return chosen;
  }
  check_readable(standard, fmt::format("Give --data the folder that holds {}/ with this file (docs/judges.md "
                                       "lists what is needed), or {} another file.",
                                       standard.parent_path().filename().string(), option));
  return standard;
}

void check_given_files(const JudgedBenchmarkOptions& options) {
  check_readable(options.outputs,
                 "Give --outputs the model's answers; smoe-eval writes them for this benchmark.");
  const std::pair<const char*, const std::filesystem::path*> others[] = {
      {"--judgements", &options.judgements},
      {"--difficulty", &options.difficulty_file},
      {"--gamed", &options.gamed_file}};
  for (const auto& [option, file] : others) {
    if (!file->empty()) {
      check_readable(*file, fmt::format("Give {} a file that can be read, or leave it out.", option));
    }
  }
}

nlohmann::ordered_json file_json(const std::filesystem::path& file) {
  return {{"file", file.string()}, {"sha256", sha256_of_file(file)}};
}

// The facts that both benchmarks record.
nlohmann::ordered_json context_json(const JudgedBenchmarkOptions& options,
                                    const std::string& prescribed_model, const JudgeSampling& sampling) {
  nlohmann::ordered_json json = {{"smoe_version", version()},
                                 {"outputs", file_json(options.outputs)},
                                 {"limit", options.limit},
                                 {"allow_missing", options.allow_missing}};
  if (!options.judgements.empty()) {
    json["judgements"] = file_json(options.judgements);
    return json;
  }
  json["judge"] = {{"base_url", options.endpoint.base_url},
                   {"model", options.endpoint.model},
                   {"prescribed_model", prescribed_model},
                   {"temperature", sampling.temperature},
                   {"max_tokens", sampling.max_tokens},
                   {"top_logprobs", sampling.top_logprobs},
                   {"prompt_price_per_million", options.endpoint.prompt_price},
                   {"completion_price_per_million", options.endpoint.completion_price}};
  return json;
}

JudgedBenchmarkOptions checked(JudgedBenchmarkOptions options, const std::string& prescribed_model) {
  SMOE_CHECK(ConfigError, options.judgements.empty() != options.endpoint.base_url.empty(),
             "give either the endpoint of a judge (--base-url) or a file of judgements (--judgements)");
  SMOE_CHECK(ConfigError, options.limit >= 0, "a limit of {} rows; allowed are 0 (all) and more",
             options.limit);
  if (options.endpoint.model.empty()) options.endpoint.model = prescribed_model;
  std::error_code error;
  std::filesystem::create_directories(options.out, error);
  SMOE_CHECK(ConfigError, !error, "{}: cannot make the folder for results: {}; name another one with --out",
             options.out.string(), error.message());
  return options;
}

// Asks the endpoint and records what that took.
std::vector<JudgeReply> ask(const JudgedBenchmarkOptions& options, JudgeSampling sampling,
                            const std::vector<JudgeRequest>& requests, JudgedBenchmark& result) {
  sampling.max_tokens_field = options.max_tokens_field;
  JudgeClient client(options.endpoint, sampling, options.out / "judge_log.jsonl");
  std::vector<JudgeReply> replies = client.answer(requests);
  result.json["usage"] = usage_json(client.usage());
  result.terminal_table = usage_note(client.usage());
  return replies;
}

// Completes `result` and writes it. `result.terminal_table` holds the note on the judge, if one was asked.
template <class Scores>
void finish(const JudgedBenchmarkOptions& options, const std::string& title, const Scores& scores,
            JudgedBenchmark& result) {
  result.num_invalid = scores.num_invalid;
  result.json["model"] = scores.model_name;
  result.json["baseline"] = scores.baseline_name;
  result.json["scores"] = scores_json(scores);
  const Table table = scores_table(scores);
  const std::string notes = score_notes(scores) + result.terminal_table;
  result.terminal_table = table.to_terminal() + notes;
  result.markdown = fmt::format("# {} of {}\n\n{}\n{}", title, scores.model_name, table.to_markdown(), notes);
  write_file_atomically(options.out / "results.json",
                        result.json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  write_file_atomically(options.out / "results.md", result.markdown);
}

}  // namespace

JudgedBenchmark judge_alpaca_eval(const JudgedBenchmarkOptions& given) {
  const auto folder = given.data / "alpaca_eval";
  const auto reference =
      benchmark_file(given.baseline, "--baseline", folder / "alpaca_eval_gpt4_turbo_reference.jsonl");
  const auto prompt = benchmark_file(given.judge_prompt, "--judge-prompt",
                                     folder / "judge_prompt_weighted_alpaca_eval_gpt4_turbo.jsonl");
  check_given_files(given);
  const AlpacaJudge judge = read_alpaca_judge(prompt);
  const JudgedBenchmarkOptions options = checked(given, judge.model);
  // Before any request is paid for.
  const LengthControlData length_control =
      read_length_control_data(options.difficulty_file, options.gamed_file);
  const std::vector<AlpacaItem> items =
      pair_alpaca_outputs(read_alpaca_outputs(reference), read_alpaca_outputs(options.outputs),
                          {options.seed, options.limit, options.allow_missing});

  JudgedBenchmark result;
  result.json["benchmark"] = "alpaca_eval_2";
  result.json["context"] = context_json(options, judge.model, judge.sampling);
  result.json["context"]["baseline"] = file_json(reference);
  result.json["context"]["judge_prompt"] = file_json(prompt);
  result.json["context"]["order_seed"] = options.seed;
  std::vector<AlpacaVerdict> verdicts;
  if (options.judgements.empty()) {
    std::vector<JudgeRequest> requests;
    for (const AlpacaItem& item : items) requests.push_back(alpaca_request(judge, item));
    const std::vector<JudgeReply> replies = ask(options, judge.sampling, requests, result);
    for (size_t i = 0; i < items.size(); ++i) {
      verdicts.push_back(read_alpaca_verdict(judge, items[i], replies[i]));
    }
    write_alpaca_annotations(options.out / "annotations.json", judge.name, items, verdicts);
  } else {
    verdicts = read_alpaca_annotations(options.judgements, items);
  }
  finish(options, "AlpacaEval 2", score_alpaca(items, verdicts, length_control), result);
  return result;
}

JudgedBenchmark judge_arena_hard(const JudgedBenchmarkOptions& given) {
  const auto folder = given.data / "arena_hard";
  const auto prompt = benchmark_file(given.judge_prompt, "--judge-prompt", folder / "judge_prompt.jsonl");
  const ArenaJudge judge = read_arena_judge(prompt);
  const auto baseline =
      benchmark_file(given.baseline, "--baseline", folder / fmt::format("baseline_{}.jsonl", judge.baseline));
  check_readable(folder / "question.jsonl", "Give --data the folder that holds arena_hard/ with this file.");
  check_given_files(given);
  const JudgedBenchmarkOptions options = checked(given, judge.model);
  const ArenaData data =
      pair_arena_answers(folder / "question.jsonl", read_arena_answers(baseline),
                         read_arena_answers(options.outputs), {options.limit, options.allow_missing});

  JudgedBenchmark result;
  result.json["benchmark"] = "arena_hard";
  result.json["context"] = context_json(options, judge.model, judge.sampling);
  result.json["context"]["baseline"] = file_json(baseline);
  result.json["context"]["judge_prompt"] = file_json(prompt);
  result.json["context"]["questions"] = file_json(folder / "question.jsonl");
  std::vector<ArenaGames> games;
  if (options.judgements.empty()) {
    std::vector<JudgeRequest> requests;
    for (const ArenaItem& item : data.items) {
      for (JudgeRequest& request : arena_requests(judge, item)) requests.push_back(std::move(request));
    }
    const std::vector<JudgeReply> replies = ask(options, judge.sampling, requests, result);
    for (size_t i = 0; i < data.items.size(); ++i) {
      games.push_back(
          {read_arena_verdict(judge, 0, replies[2 * i]), read_arena_verdict(judge, 1, replies[2 * i + 1])});
    }
    write_arena_judgements(options.out / "judgements.jsonl", options.endpoint.model, data, games);
  } else {
    games = read_arena_judgements(options.judgements, data);
  }
  finish(options, "Arena-Hard", score_arena(data, games, options.bootstrap_unit, options.bootstrap), result);
  return result;
}

}  // namespace smoe
