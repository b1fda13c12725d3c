#include "smoe/eval/ifeval_scores.h"

namespace smoe {

const std::array<IfevalScore, 8>& ifeval_scores() {
  static constexpr auto kAll = IfevalScope::kAll;
  static constexpr auto kWithout = IfevalScope::kWithoutOutsideModels;
  static constexpr std::array<IfevalScore, 8> scores = {
      {{"prompt_level_strict_acc", false, true, kAll},
       {"inst_level_strict_acc", false, false, kAll},
       {"prompt_level_loose_acc", true, true, kAll},
       {"inst_level_loose_acc", true, false, kAll},
       {"prompt_level_strict_acc_without_models", false, true, kWithout},
       {"inst_level_strict_acc_without_models", false, false, kWithout},
       {"prompt_level_loose_acc_without_models", true, true, kWithout},
       {"inst_level_loose_acc_without_models", true, false, kWithout}}};
  return scores;
}

MetricSeries ifeval_series(const IfevalScore& score,
                           const std::vector<std::vector<IfevalVerdict>>& verdicts) {
  MetricSeries series;
  for (const std::vector<IfevalVerdict>& prompt : verdicts) {
    double followed = 0.0;
    double counted = 0.0;
    for (const IfevalVerdict& verdict : prompt) {
      if (score.scope == IfevalScope::kWithoutOutsideModels && verdict.kind.needs_outside_model) continue;
      followed += (score.loose ? verdict.loose : verdict.strict) ? 1.0 : 0.0;
      counted += 1.0;
    }
    if (score.whole_prompt) {
      series.values.push_back(counted > 0.0 && followed == counted ? 1.0 : 0.0);
      series.weights.push_back(counted > 0.0 ? 1.0 : 0.0);
    } else {
      series.values.push_back(followed);
      series.weights.push_back(counted);
    }
  }
  return series;
}

}  // namespace smoe
