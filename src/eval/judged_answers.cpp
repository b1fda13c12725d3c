#include "eval/judged_answers.h"

#include <chrono>

#include "smoe/core/error.h"
#include "smoe/core/file_name.h"
#include "smoe/eval/model_outputs.h"

namespace smoe {
namespace {

std::string text_or_nothing(const Row& row, const char* key) {
  const auto found = row.value().find(key);
  return found == row.value().end() || found->is_null() ? "" : row.text(key);
}

std::string first_text(const BudgetScores& scores, size_t row) { return scores.samples[row]["texts"][0]; }

void write_alpaca(const std::filesystem::path& file, const PreparedTask& task, const BudgetScores& scores,
                  const std::string& model) {
  std::vector<AlpacaOutput> outputs;
  for (size_t i = 0; i < task.items.size(); ++i) {
    const Row& row = *task.items[i].row;
    outputs.push_back(
        {text_or_nothing(row, "dataset"), row.text("instruction"), first_text(scores, i), model});
  }
  write_alpaca_outputs(file, outputs);
}

void write_arena(const std::filesystem::path& file, const PreparedTask& task, const BudgetScores& scores,
                 const std::string& model) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  std::vector<ArenaAnswer> answers;
  for (size_t i = 0; i < task.items.size(); ++i) {
    const Row& row = *task.items[i].row;
    answers.push_back({row.text("uid"), "", model, row.text("prompt"), first_text(scores, i), now.count()});
  }
  write_arena_answers(file, answers);
}

}  // namespace

std::vector<std::string> write_judged_answers(const PreparedTask& task,
                                              const std::vector<BudgetScores>& scores,
                                              const std::vector<std::string>& budget_names,
                                              const EvaluationOptions& options) {
  const bool is_alpaca = task.config->judged.format == JudgedFormat::kAlpacaEval;
  std::vector<std::string> files;
  for (size_t i = 0; i < scores.size(); ++i) {
    const std::filesystem::path file = options.answers / task.config->name /
                                       (file_name_of(budget_names[i]) + (is_alpaca ? ".json" : ".jsonl"));
    const std::string model = fmt::format("{}-{}", options.model_name, budget_names[i]);
    if (is_alpaca) {
      write_alpaca(file, task, scores[i], model);
    } else {
      write_arena(file, task, scores[i], model);
    }
    files.push_back(std::filesystem::absolute(file).string());
  }
  return files;
}

std::string judge_command(const TaskConfig& task, const std::vector<std::string>& files,
                          const EvaluationOptions& options) {
  const bool is_alpaca = task.judged.format == JudgedFormat::kAlpacaEval;
  std::filesystem::path out = files.front();
  out.replace_extension(".judged");
  return fmt::format(
      "{}: answers are written, and scored by another command, for each budget:\n"
      "  smoe-judge {} --outputs {} --data {} --out {} --base-url URL --api-key-env VARIABLE{}",
      task.title.empty() ? task.name : task.title, is_alpaca ? "alpaca_eval_2" : "arena_hard", files.front(),
      options.data_folder.string(), out.string(),
      options.limit > 0 ? fmt::format(" --limit {}", options.limit) : "");
}

}  // namespace smoe
