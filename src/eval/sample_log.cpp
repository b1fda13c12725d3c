#include "eval/sample_log.h"

#include <algorithm>
#include <set>

#include "smoe/core/files.h"

namespace smoe {
namespace {

bool is_choice_kind(TaskKind kind) {
  return kind == TaskKind::kMultipleChoice || kind == TaskKind::kPartialEvaluation;
}

}  // namespace

// Task names may hold paths (text:FILE).
std::string sample_file_name(const std::string& task) {
  std::string name = task;
  std::ranges::replace_if(
      name, [](char c) { return c == '/' || c == ':' || c == '\\'; }, '_');
  return name + ".jsonl";
}

nlohmann::ordered_json likelihood_sample(const TaskConfig& task, const EvaluationItem& item,
                                         const ItemScore& score) {
  nlohmann::ordered_json json;
  for (const ChoiceScore& choice : score) {
    json["sums"].push_back(choice.sum);
    json["is_greedy"].push_back(choice.is_greedy);
    json["num_tokens"].push_back(choice.num_tokens);
  }
  for (const Metric metric : {Metric::kAccuracy, Metric::kAccuracyCharacters, Metric::kAccuracyBytes}) {
    if (std::ranges::find(task.metrics, metric) == task.metrics.end() || !is_choice_kind(task.kind)) continue;
    const int64_t predicted = predicted_choice(metric, item, score);
    json[std::string(enum_to_name(metric))] = {{"predicted", predicted}, {"correct", predicted == item.gold}};
  }
  if (task.kind == TaskKind::kLastWord) json["acc"] = {{"correct", score.front().is_greedy}};
  return json;
}

SampleLog::SampleLog(std::filesystem::path path) : path_(std::move(path)) {
  if (path_.empty()) return;
  prepare_output_file(path_.extension() == ".jsonl" ? path_ : path_ / "task.jsonl");
}

void SampleLog::add(const TaskConfig& task, const EvaluationItem& item,
                    const std::vector<std::string>& budget_names,
                    const std::vector<nlohmann::ordered_json>& of_budget,
                    const nlohmann::ordered_json& token_ids) {
  if (path_.empty()) return;
  nlohmann::ordered_json line = {{"task", task.name}, {"line", item.line}};
  if (!item.shots.empty()) line["shots"] = item.shots;
  // A multiple choice has one context; repeating it for every choice would only lengthen the log.
  std::set<std::string> contexts;
  for (const TextPair& pair : item.pairs) contexts.insert(pair.context);
  for (const TextPair& pair : item.pairs) {
    if (contexts.size() > 1 || &pair == &item.pairs.front()) line["contexts"].push_back(pair.context);
    if (!is_generation(task.kind)) line["continuations"].push_back(pair.continuation);
  }
  if (is_choice_kind(task.kind)) {
    line["choices"] = item.choices;
    line["gold"] = item.gold;
  }
  if (!item.references.empty()) line["references"] = item.references;
  if (!token_ids.is_null()) line["token_ids"] = token_ids;
  for (size_t i = 0; i < budget_names.size(); ++i) {
    line["budgets"][budget_names[i]] = of_budget[i];
  }
  // Data may hold invalid UTF-8; a log is no reason to stop.
  lines_ += line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

void SampleLog::finish_task(const TaskConfig& task) {
  if (path_.empty()) return;
  if (path_.extension() == ".jsonl") {
    write_file_atomically(path_, lines_);
  } else {
    write_file_atomically(path_ / sample_file_name(task.name), lines_);
    lines_.clear();
  }
}

std::string SampleLog::file_of(const std::string& task) const {
  if (path_.empty()) return "";
  const bool is_one_file = path_.extension() == ".jsonl";
  return std::filesystem::absolute(is_one_file ? path_ : path_ / sample_file_name(task)).string();
}

}  // namespace smoe
