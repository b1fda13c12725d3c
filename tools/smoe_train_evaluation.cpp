#include "smoe_train_evaluation.h"

#include <fmt/ranges.h>

#include "smoe/eval/task_library.h"

namespace smoe {

std::shared_ptr<const TrainingEvaluation> make_training_evaluation(const TrainConfig& config) {
  const EvaluationConfig& wanted = config.evaluation;
  if (wanted.tasks.empty()) return nullptr;
  const TaskLibrary library(wanted.task_folder.empty() ? TaskLibrary::default_folder()
                                                       : std::filesystem::path(wanted.task_folder));
  TaskSelection selection = library.select(wanted.tasks);
  EvaluationOptions options;
  options.tasks = std::move(selection.tasks);
  options.groups = std::move(selection.groups);
  options.data_folder = wanted.data;
  options.limit = wanted.limit;
  options.num_shots = wanted.num_fewshot;
  options.max_new_tokens = wanted.max_new_tokens;
  options.batch_tokens = wanted.batch_tokens;
  options.bos = parse_bos_policy(wanted.bos);
  options.max_length = config.data.sequence_length;
  options.checkpoint = config.run_folder;
  if (!wanted.budgets.empty()) {
    options.budgets = parse_budgets(config.model, fmt::format("{}", fmt::join(wanted.budgets, ",")));
  }
  if (config.task == TrainTask::kSft) {
    options.chat_template = load_chat_template(config.sft.chat_template);
    options.routing = RoutingMode::kLastPromptToken;
  }
  return std::make_shared<const TrainingEvaluation>(std::move(options), config.data.tokenizer,
                                                    std::filesystem::path(config.run_folder) / "evaluation");
}

}  // namespace smoe
