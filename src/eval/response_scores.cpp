#include "smoe/eval/response_scores.h"

#include <algorithm>

#include "smoe/core/error.h"
#include "smoe/eval/code_programs.h"
#include "smoe/eval/ifeval_scores.h"
#include "smoe/eval/math_answers.h"
#include "smoe/eval/pass_at_k.h"
#include "smoe/eval/text_filters.h"
#include "smoe/eval/tool_calls.h"

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

void add_row(MetricSeries& series, double value, double weight = 1.0) {
  series.values.push_back(value);
  series.weights.push_back(weight);
}

void add_series(const MetricSeries& series, MetricSeries& sum) {
  for (size_t i = 0; i < series.values.size(); ++i) {
    sum.values[i] += series.values[i];
    sum.weights[i] += series.weights[i];
  }
}

void divide_series(MetricSeries& series, double divisor) {
  for (double& value : series.values) value /= divisor;
  for (double& weight : series.weights) weight /= divisor;
}

}  // namespace

ResponseScorer::ResponseScorer(const TaskConfig& task, const CodeRunner* runner)
    : task_(task), runner_(runner), exact_match_(task.exact_match) {
  SMOE_ASSERT(task.kind != TaskKind::kCode || runner != nullptr);
}

void ResponseScorer::check(const std::vector<EvaluationItem>& items) const {
  for (const EvaluationItem& item : items) {
    if (task_.kind == TaskKind::kInstruction) build_ifeval_item(item.row->value(), item.where);
    if (task_.kind == TaskKind::kToolCall) ToolTarget target(*item.row);
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
  return score_samples(items, answers);
}

BudgetScores ResponseScorer::score_samples(const std::vector<EvaluationItem>& items,
                                           const std::vector<RowAnswers>& answers) const {
  const size_t num_samples = answers.front().size();
  BudgetScores mean;
  for (const RowAnswers& row : answers) mean.samples.push_back(generation_sample(row));
  for (size_t sample = 0; sample < num_samples; ++sample) {
    Texts texts;
    for (const RowAnswers& row : answers) texts.push_back(row[sample].text);
    const BudgetScores scores = score_texts(items, texts);
    if (sample == 0) {
      mean.series = scores.series;
    } else {
      for (size_t i = 0; i < mean.series.size(); ++i) add_series(scores.series[i], mean.series[i]);
    }
    for (size_t row = 0; row < items.size(); ++row) {
      if (num_samples == 1) {
        mean.samples[row].update(scores.samples[row]);
      } else {
        mean.samples[row]["samples"].push_back(scores.samples[row]);
      }
    }
  }
  for (MetricSeries& series : mean.series) divide_series(series, static_cast<double>(num_samples));
  return mean;
}

BudgetScores ResponseScorer::score_texts(const std::vector<EvaluationItem>& items, const Texts& texts) const {
  if (task_.kind == TaskKind::kInstruction) return score_instructions(items, texts);
  if (task_.kind == TaskKind::kToolCall) return score_tool_calls(items, texts);
  if (task_.kind == TaskKind::kJudged) return measure_answers(items, texts);
  return score_answers(items, texts);
}

BudgetScores ResponseScorer::score_answers(const std::vector<EvaluationItem>& items,
                                           const Texts& texts) const {
  BudgetScores scores;
  const std::vector<std::string> names = metric_names(task_);
  scores.series.resize(names.size());
  for (size_t i = 0; i < items.size(); ++i) {
    nlohmann::ordered_json sample;
    for (size_t j = 0; j < task_.answers.size(); ++j) {
      const std::string answer = read_answer(task_.answers[j], texts[i]);
      const bool right = is_right(task_.answers[j], exact_match_, answer, items[i].references);
      add_row(scores.series[j], right ? 1.0 : 0.0);
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
                                                const Texts& texts) const {
  BudgetScores scores;
  std::vector<std::vector<IfevalVerdict>> verdicts;
  for (size_t i = 0; i < items.size(); ++i) {
    verdicts.push_back(check_ifeval(build_ifeval_item(items[i].row->value(), items[i].where), texts[i]));
    nlohmann::ordered_json sample;
    for (const IfevalVerdict& verdict : verdicts.back()) {
      sample["instructions"].push_back(
          {{"id", verdict.kind.id}, {"strict", verdict.strict}, {"loose", verdict.loose}});
    }
    scores.samples.push_back(std::move(sample));
  }
  for (const IfevalScore& score : ifeval_scores()) scores.series.push_back(ifeval_series(score, verdicts));
  return scores;
}

BudgetScores ResponseScorer::score_tool_calls(const std::vector<EvaluationItem>& items,
                                              const Texts& texts) const {
  BudgetScores scores;
  scores.series.resize(metric_names(task_).size());
  for (size_t i = 0; i < items.size(); ++i) {
    const ToolMessage message = read_tool_answer(task_.tool_call, texts[i]);
    const ToolVerdict verdict = ToolTarget(*items[i].row).compare(message);
    const auto expected = static_cast<double>(verdict.expected);
    const double is_expected = verdict.expected > 0 ? 1.0 : 0.0;
    const double is_made = verdict.makes_call ? 1.0 : 0.0;
    // Calls where a text is expected match none, and so count for nothing here.
    add_row(scores.series[0], verdict.is_right ? 1.0 : 0.0);
    add_row(scores.series[1], static_cast<double>(verdict.named), expected);
    add_row(scores.series[2], static_cast<double>(verdict.strict), expected);
    add_row(scores.series[3], static_cast<double>(verdict.lenient), expected);
    add_row(scores.series[4], static_cast<double>(verdict.bag_of_words), expected);
    add_row(scores.series[5], is_expected * is_made, is_expected);
    add_row(scores.series[6], is_expected * is_made, is_made);
    nlohmann::ordered_json sample = {{"content", message.content}, {"correct", verdict.is_right}};
    for (const ToolCall& call : message.calls) {
      sample["calls"].push_back(
          {{"name", call.name}, {"arguments", call.arguments}, {"is_readable", call.is_readable}});
    }
    scores.samples.push_back(std::move(sample));
  }
  return scores;
}

BudgetScores ResponseScorer::measure_answers(const std::vector<EvaluationItem>& items,
                                             const Texts& texts) const {
  BudgetScores scores;
  scores.series.resize(1);
  for (const std::string& text : texts) {
    add_row(scores.series[0], static_cast<double>(count_code_points(text)));
  }
  scores.samples.assign(items.size(), nlohmann::ordered_json::object());
  return scores;
}

}  // namespace smoe
