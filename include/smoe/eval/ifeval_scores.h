// The four published scores of IFEval, over all kinds of instructions and without the five that outside
// models decide.
#pragma once

#include <array>
#include <vector>

#include "smoe/eval/ifeval.h"
#include "smoe/eval/metrics.h"

namespace smoe {

enum class IfevalScope {
  kAll,
  kWithoutOutsideModels,  // prompts are judged by their other instructions; those with no other are left out
};

struct IfevalScore {
  std::string_view name;  // as in lm-evaluation-harness, with "_without_models" for the smaller scope
  bool loose = false;
  bool whole_prompt = false;  // a prompt counts once, if all its instructions are followed
  IfevalScope scope = IfevalScope::kAll;
};

// All eight, in the order of reports.
const std::array<IfevalScore, 8>& ifeval_scores();

// One entry a prompt: instructions (or prompts: 0 or 1) followed, and those that count. estimate() gives the
// score; prompts that do not count have weight 0.
MetricSeries ifeval_series(const IfevalScore& score, const std::vector<std::vector<IfevalVerdict>>& verdicts);

}  // namespace smoe
