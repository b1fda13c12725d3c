#include "smoe/eval/alpaca_eval.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "eval/judge_prompts.h"
#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/core/random.h"
#include "smoe/eval/text_filters.h"

namespace smoe {
namespace {

bool draw_order(uint64_t seed, const std::string& instruction) {
  const uint64_t key = std::stoull(sha256_of_bytes(instruction).substr(0, 16), nullptr, 16);
  return SplitMix64(mix_seeds(seed, key)).below(2) == 1;
}

// The likeliest tokens at the first place of the answer, with their log-probabilities; null if there are
// none.
const nlohmann::json* first_top_logprobs(const nlohmann::json& logprobs) {
  if (!logprobs.is_object() || !logprobs.contains("content")) return nullptr;
  const nlohmann::json& content = logprobs["content"];
  if (!content.is_array() || content.empty() || !content[0].is_object()) return nullptr;
  const auto found = content[0].find("top_logprobs");
  return found != content[0].end() && found->is_array() ? &*found : nullptr;
}

double probability_of(const nlohmann::json& top_logprobs, const std::string& token) {
  for (const nlohmann::json& entry : top_logprobs) {
    if (!entry.is_object() || !entry.contains("token") || entry["token"] != token) continue;
    if (entry.contains("logprob") && entry["logprob"].is_number()) {
      return std::exp(entry["logprob"].get<double>());
    }
  }
  return 0.0;
}

void check_template(const AlpacaJudge& judge, const std::string& where) {
  std::string all;
  for (const JudgeMessage& message : judge.messages) all += message.content;
  for (const char* placeholder : {"{instruction}", "{output_1}", "{output_2}"}) {
    SMOE_CHECK(DataError, all.find(placeholder) != std::string::npos, "{}: `prompt_template` lacks {}", where,
               placeholder);
  }
  SMOE_CHECK(DataError,
             judge.denominator_tokens.size() > 1 &&
                 std::ranges::count(judge.denominator_tokens, judge.numerator_token) == 1,
             "{}: `denominator_tokens` must hold `numerator_token` ('{}') once and another token", where,
             judge.numerator_token);
}

void add_win_rate(const std::vector<double>& preferences, AlpacaScores& scores) {
  const auto n = static_cast<double>(preferences.size());
  for (double preference : preferences) {
    scores.win_rate += preference / n;
    scores.num_wins += preference > 0.5;
    scores.num_draws += preference == 0.5;
  }
  double squares = 0.0;
  for (double preference : preferences) squares += std::pow(preference - scores.win_rate, 2);
  scores.standard_error = n > 1 ? std::sqrt(squares / (n - 1) / n) : 0.0;
}

}  // namespace

AlpacaJudge read_alpaca_judge(const std::filesystem::path& file) {
  const Row row = read_judge_settings(file);
  AlpacaJudge judge;
  judge.name = row.text("name");
  judge.model = row.text("judge_model");
  judge.messages = parse_chat_template(row.text("prompt_template"), row.where());
  judge.numerator_token = row.text("numerator_token");
  judge.denominator_tokens = row.texts("denominator_tokens");
  check_template(judge, row.where());
  judge.sampling.temperature = judge_number(row, "temperature");
  judge.sampling.max_tokens = static_cast<int64_t>(judge_number(row, "max_tokens"));
  judge.sampling.top_logprobs = static_cast<int64_t>(judge_number(row, "top_logprobs"));
  return judge;
}

std::vector<AlpacaItem> pair_alpaca_outputs(const std::vector<AlpacaOutput>& reference,
                                            const std::vector<AlpacaOutput>& outputs,
                                            const AlpacaPairing& pairing) {
  std::unordered_map<std::string, const AlpacaOutput*> output_of;
  for (const AlpacaOutput& output : outputs) output_of[output.instruction] = &output;
  std::vector<AlpacaItem> items;
  std::vector<std::string> missing;
  int64_t num_known = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const AlpacaOutput& base = reference[i];
    const auto found = output_of.find(base.instruction);
    if (found != output_of.end()) ++num_known;
    if (pairing.limit > 0 && static_cast<int64_t>(i) >= pairing.limit) continue;
    if (found == output_of.end()) {
      missing.push_back(base.instruction);
      continue;
    }
    const AlpacaOutput& output = *found->second;
    items.push_back({static_cast<int64_t>(i), base.dataset, base.instruction, base.output, base.generator,
                     output.output, output.generator, draw_order(pairing.seed, base.instruction)});
  }
  SMOE_CHECK(DataError, num_known == std::ssize(outputs),
             "{} of {} answers belong to no instruction of the benchmark; are these answers to AlpacaEval?",
             std::ssize(outputs) - num_known, outputs.size());
  SMOE_CHECK(DataError, missing.empty() || pairing.allow_missing,
             "{} instructions have no answer, the first is '{:.80}'; generate them, or judge what is there "
             "with --allow-missing",
             missing.size(), missing.empty() ? "" : missing[0]);
  SMOE_CHECK(DataError, !items.empty(), "no instruction of the benchmark has an answer");
  return items;
}

JudgeRequest alpaca_request(const AlpacaJudge& judge, const AlpacaItem& item) {
  const std::string& first = item.model_is_first ? item.model_output : item.baseline_output;
  const std::string& second = item.model_is_first ? item.baseline_output : item.model_output;
  JudgeRequest request{fmt::format("alpaca_eval {}", item.index), {}};
  for (const JudgeMessage& message : judge.messages) {
    const std::string text = fill_placeholders(
        message.content, {{"instruction", item.instruction}, {"output_1", first}, {"output_2", second}});
    request.messages.push_back({message.role, text});
  }
  return request;
}

AlpacaVerdict read_alpaca_verdict(const AlpacaJudge& judge, const AlpacaItem& item, const JudgeReply& reply) {
  AlpacaVerdict verdict{std::nullopt, reply.text, reply.problem};
  if (!reply.answered) return verdict;
  const nlohmann::json* top_logprobs = first_top_logprobs(reply.logprobs);
  if (top_logprobs == nullptr) {
    verdict.problem = "the answer has no log-probabilities";
    return verdict;
  }
  double total = 0.0;
  for (const std::string& token : judge.denominator_tokens) total += probability_of(*top_logprobs, token);
  if (!(total > 0.0) || !std::isfinite(total)) {
    verdict.problem = fmt::format("none of the tokens {} is among the likeliest",
                                  fmt::join(judge.denominator_tokens, ", "));
    return verdict;
  }
  const double first = probability_of(*top_logprobs, judge.numerator_token) / total;
  verdict.preference = item.model_is_first ? first : 1.0 - first;
  return verdict;
}

AlpacaScores score_alpaca(const std::vector<AlpacaItem>& items, const std::vector<AlpacaVerdict>& verdicts,
                          const LengthControlData& length_control) {
  SMOE_ASSERT(items.size() == verdicts.size() && !items.empty());
  AlpacaScores scores;
  scores.model_name = items[0].model_name;
  scores.baseline_name = items[0].baseline_name;
  scores.num_items = std::ssize(items);
  std::vector<double> preferences;
  std::vector<LengthControlItem> regression_items;
  for (size_t i = 0; i < items.size(); ++i) {
    const int64_t baseline_length = count_code_points(items[i].baseline_output);
    const int64_t model_length = count_code_points(items[i].model_output);
    regression_items.push_back({items[i].index, verdicts[i].preference, baseline_length, model_length});
    const auto n = static_cast<double>(items.size());
    scores.average_length += static_cast<double>(model_length) / n;
    scores.baseline_average_length += static_cast<double>(baseline_length) / n;
    if (verdicts[i].preference) preferences.push_back(*verdicts[i].preference);
  }
  scores.num_invalid = scores.num_items - std::ssize(preferences);
  SMOE_CHECK(DataError, !preferences.empty(), "none of {} judgements is valid; the first says: {} {}",
             items.size(), verdicts[0].problem, verdicts[0].raw);
  add_win_rate(preferences, scores);
  try {
    scores.length_controlled = length_controlled_win_rate(regression_items, length_control);
  } catch (const DataError& error) {
    // Too few or too uniform answers for a regression; the plain win rate stands.
    scores.length_control_problem = error.what();
  }
  return scores;
}

}  // namespace smoe
