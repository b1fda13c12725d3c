#include "smoe/eval/training_evaluation.h"

#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/eval/items.h"

namespace smoe {
namespace {

void add_values(const std::string& name, const MetricResult& metric, const EvaluationResults& results,
                std::map<std::string, double>& values) {
  for (size_t i = 0; i < metric.budgets.size(); ++i) {
    values[fmt::format("{}/{}/{}", name, metric.name, results.budget_names[i])] = metric.budgets[i].value;
  }
}

}  // namespace

TrainingEvaluation::TrainingEvaluation(EvaluationOptions options, const std::filesystem::path& tokenizer,
                                       std::filesystem::path folder)
    : options_(std::move(options)), tokenizer_(load_tokenizer(tokenizer)), folder_(std::move(folder)) {
  leading_token(*tokenizer_, options_.bos);
  for (const TaskConfig& task : options_.tasks) {
    const ItemOptions items = {.data_folder = options_.data_folder,
                               .limit = options_.limit,
                               .num_shots = shots_of(task, options_.num_shots),
                               .seed = options_.seed};
    rows_of_task_[task.name] = std::ssize(build_items(task, items));
  }
}

std::map<std::string, double> TrainingEvaluation::run(const Model& model, int64_t step) const {
  const EvaluationResults results = evaluate(model, *tokenizer_, options_);
  const std::filesystem::path file = folder_ / fmt::format("step-{:08d}.json", step);
  prepare_output_file(file);
  write_file_atomically(file, to_json(results).dump(2) + "\n");
  std::map<std::string, double> values;
  for (const TaskResult& task : results.tasks) {
    for (const MetricResult& metric : task.metrics) add_values(task.name, metric, results, values);
  }
  for (const GroupResult& group : results.groups) add_values(group.name, group.mean, results, values);
  return values;
}

std::string TrainingEvaluation::describe() const {
  std::string text;
  for (const auto& [task, rows] : rows_of_task_) {
    text += fmt::format("evaluation      {}: {} rows\n", task, rows);
  }
  return text;
}

}  // namespace smoe
