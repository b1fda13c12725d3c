// The evaluation that smoe-train plugs into training, made from the config of the run.
#pragma once

#include <memory>

#include "smoe/eval/training_evaluation.h"
#include "smoe/train/train_config.h"

namespace smoe {

// Null where the config names no tasks. Throws ConfigError or DataError for tasks and data that are not there.
std::shared_ptr<const TrainingEvaluation> make_training_evaluation(const TrainConfig& config);

}  // namespace smoe
