#include "smoe/eval/response_scores.h"

#include <algorithm>

#include "smoe/core/error.h"
#include "smoe/eval/code_programs.h"
#include "smoe/eval/ifeval_scores.h"
#include "smoe/eval/math_answers.h"
#include "smoe/eval/pass_at_k.h"

namespace smoe {
namespace {

nlohmann::ordered_json generation_sample(const RowAnswers& answers) {
  nlohmann::ordered_json json;
  for (const GeneratedAnswer& answer : answers) {
    json["texts"].push_back(answer.text);
    json["finish"].push_back(finish_reason_name(answer.finish));
    json["num_tokens"].push_back(answer.num_tokens);
  }
  return json;
}

std::string read_answer(const AnswerConfig& config, const std::string& text) {
  switch (config.reading) {
    case AnswerReading::kText:
      return text;
    case AnswerReading::kStrip:
      return remove_whitespace(text);
    case AnswerReading::kRegex:
      return RegexFilter(config.regex).apply(text);
    case AnswerReading::kMinerva:
      return normalize_minerva_answer(minerva_answer(text));
  }
  SMOE_ASSERT(false);
}

bool is_right(const AnswerConfig& config, const ExactMatch& exact_match, const std::string& answer,
              const std::vector<std::string>& references) {
  if (config.reading != AnswerReading::kMinerva) return exact_match.any_equal(answer, references);
  return std::ranges::any_of(references, [&](const std::string& solution) {
    return exact_match.equal(answer, minerva_reference(solution));
  });
}

}  // namespace

ResponseScorer::ResponseScorer(const TaskConfig& task, const CodeRunner* runner)
    : task_(task), runner_(runner), exact_match_(task.exact_match) {
  SMOE_ASSERT(task.kind != TaskKind::kCode || runner != nullptr);
}

void ResponseScorer::check(const std::vector<EvaluationItem>& items) const {
  for (const EvaluationItem& item : items) {
    if (task_.kind == TaskKind::kInstruction) build_ifeval_item(item.row->value(), item.where);
    if (task_.kind == TaskKind::kCode) {
      const std::optional<std::string> missing = runner_->missing_for(program(item, ""));
      SMOE_CHECK(ConfigError, !missing.has_value(), "skipped, not scored: {}", *missing);
    }
    for (const AnswerConfig& answer : task_.answers) {
      if (answer.reading != AnswerReading::kMinerva) continue;
      for (const std::string& solution : item.references) minerva_reference(solution);
    }
  }
}

BudgetScores ResponseScorer::score(const std::vector<EvaluationItem>& items,
                                   const std::vector<RowAnswers>& answers) const {
  SMOE_ASSERT(items.size() == answers.size());
  if (task_.kind == TaskKind::kCode) return score_programs(items, answers);
  if (task_.kind == TaskKind::kInstruction) return score_instructions(items, answers);
  return score_answers(items, answers);
}

BudgetScores ResponseScorer::score_answers(const std::vector<EvaluationItem>& items,
                                           const std::vector<RowAnswers>& answers) const {
  BudgetScores scores;
  const std::vector<std::string> names = metric_names(task_);
  scores.series.resize(names.size());
  for (size_t i = 0; i < items.size(); ++i) {
    nlohmann::ordered_json sample = generation_sample(answers[i]);
    for (size_t j = 0; j < task_.answers.size(); ++j) {
      const std::string answer = read_answer(task_.answers[j], answers[i].front().text);
      const bool right = is_right(task_.answers[j], exact_match_, answer, items[i].references);
      scores.series[j].values.push_back(right ? 1.0 : 0.0);
      scores.series[j].weights.push_back(1.0);
      sample["answers"][names[j]] = {{"answer", answer}, {"correct", right}};
    }
    scores.samples.push_back(std::move(sample));
  }
  return scores;
}

Program ResponseScorer::program(const EvaluationItem& item, const std::string& completion) const {
  switch (task_.code.program) {
    case ProgramKind::kHumaneval:
      return humaneval_program(*item.row, completion);
    case ProgramKind::kMbpp:
      return mbpp_program(*item.row, completion);
    case ProgramKind::kMultiplE:
      return multipl_e_program(*item.row, completion);
  }
  SMOE_ASSERT(false);
}

BudgetScores ResponseScorer::score_programs(const std::vector<EvaluationItem>& items,
                                            const std::vector<RowAnswers>& answers) const {
  std::vector<Program> programs;
  for (size_t i = 0; i < items.size(); ++i) {
    for (const GeneratedAnswer& answer : answers[i]) programs.push_back(program(items[i], answer.text));
  }
  const std::vector<ProgramResult> results = runner_->run_all(programs);
  BudgetScores scores;
  std::vector<SampleCounts> counts;
  for (size_t i = 0, next = 0; i < items.size(); ++i) {
    nlohmann::ordered_json sample = generation_sample(answers[i]);
    SampleCounts& count = counts.emplace_back();
    for (size_t j = 0; j < answers[i].size(); ++j, ++next) {
      const ProgramResult& result = results[next];
      SMOE_CHECK(ConfigError, result.verdict != ProgramVerdict::kSkipped, "skipped, not scored: {}",
                 result.detail);
      ++count.num_samples;
      count.num_correct += result.verdict == ProgramVerdict::kPassed;
      scores.timed_out_programs += result.verdict == ProgramVerdict::kTimedOut;
      sample["verdicts"].push_back(verdict_name(result.verdict));
      sample["details"].push_back(result.detail);
    }
    scores.samples.push_back(std::move(sample));
  }
  scores.programs = std::ssize(programs);
  for (const int64_t k : task_.code.pass_at) {
    scores.series.push_back({pass_at_k(counts, k), std::vector<double>(counts.size(), 1.0)});
  }
  return scores;
}

BudgetScores ResponseScorer::score_instructions(const std::vector<EvaluationItem>& items,
                                                const std::vector<RowAnswers>& answers) const {
  BudgetScores scores;
  std::vector<std::vector<IfevalVerdict>> verdicts;
  for (size_t i = 0; i < items.size(); ++i) {
    verdicts.push_back(
        check_ifeval(build_ifeval_item(items[i].row->value(), items[i].where), answers[i].front().text));
    nlohmann::ordered_json sample = generation_sample(answers[i]);
    for (const IfevalVerdict& verdict : verdicts.back()) {
      sample["instructions"].push_back(
          {{"id", verdict.kind.id}, {"strict", verdict.strict}, {"loose", verdict.loose}});
    }
    scores.samples.push_back(std::move(sample));
  }
  for (const IfevalScore& score : ifeval_scores()) scores.series.push_back(ifeval_series(score, verdicts));
  return scores;
}

}  // namespace smoe
