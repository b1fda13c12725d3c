#include "smoe/eval/generation_overrides.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "smoe/core/error.h"

namespace smoe {
namespace {

void override_pass_at(const GenerationOverrides& overrides, TaskConfig& task) {
  std::vector<int64_t>& pass_at = task.code.pass_at;
  if (!overrides.pass_at.empty()) {
    pass_at = overrides.pass_at;
  } else {
    std::erase_if(pass_at, [&](int64_t k) { return k > task.generation.samples; });
    if (pass_at.empty()) pass_at = {1};
  }
  const std::vector<std::string> names = metric_names(task);
  if (std::ranges::find(names, task.primary) == names.end()) task.primary = names.front();
}

}  // namespace

void override_generation(const GenerationOverrides& overrides, TaskConfig& task) {
  if (!is_generation(task.kind)) return;
  TaskGenerationConfig& generation = task.generation;
  generation.temperature = overrides.temperature.value_or(generation.temperature);
  generation.top_p = overrides.top_p.value_or(generation.top_p);
  if (task.kind != TaskKind::kJudged) generation.samples = overrides.samples.value_or(generation.samples);
  if (task.kind == TaskKind::kCode) override_pass_at(overrides, task);
  SMOE_CHECK(ConfigError, generation.samples >= 1 && generation.temperature >= 0.0,
             "task {}: {} samples at temperature {}; there must be at least one, and the temperature is not "
             "negative",
             task.name, generation.samples, generation.temperature);
  SMOE_CHECK(ConfigError, generation.samples == 1 || generation.temperature > 0.0,
             "task {}: {} answers drawn at temperature 0 are all the same; give --temperature", task.name,
             generation.samples);
  SMOE_CHECK(ConfigError, generation.top_p > 0.0 && generation.top_p <= 1.0,
             "task {}: top-p is {}; it must lie above 0 and at most at 1", task.name, generation.top_p);
  for (const int64_t k : task.code.pass_at) {
    SMOE_CHECK(ConfigError, task.kind != TaskKind::kCode || (k >= 1 && k <= generation.samples),
               "task {}: pass@{} needs at least {} samples, there are {}; give --num-samples", task.name, k,
               k, generation.samples);
  }
}

}  // namespace smoe
