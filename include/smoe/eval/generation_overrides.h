// Settings of a run that replace those of its tasks: how many answers are drawn, and how.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "smoe/eval/task_config.h"

namespace smoe {

struct GenerationOverrides {
  std::optional<int64_t> samples = {};
  std::optional<double> temperature = {};
  std::optional<double> top_p = {};
  std::vector<int64_t> pass_at = {};  // empty: the task's, as far as there are samples enough
};

// Changes a task that generates; others stay as they are. A task for a judge keeps its single answer. Throws
// ConfigError, with every reason, if the result makes no sense.
void override_generation(const GenerationOverrides& overrides, TaskConfig& task);

}  // namespace smoe
