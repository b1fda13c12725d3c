#include "smoe/infer/latency_simulation.h"

#include <algorithm>
#include <numeric>

namespace smoe {
namespace {

// One token after another on the two resources.
class DecodeSimulation {
 public:
  DecodeSimulation(const DecodeCosts& costs, const DecodeScenario& scenario)
      : costs_(costs), scenario_(scenario), load_s_(costs.load_s * (1.0 - scenario.hit_rate)) {}

  DecodeTimes run() {
    DecodeTimes times;
    for (int64_t token = 0; token < scenario_.num_tokens; ++token) {
      const double begin = processor_.free_at();
      run_token(token);
      times.token_s.push_back(processor_.free_at() - begin);
    }
    times.stall_s = stall_s_;
    return times;
  }

 private:
  void run_token(int64_t token) {
    const auto context = static_cast<double>(scenario_.prompt_tokens + token);
    const bool chooses =
        scenario_.loading == ExpertLoading::kPerSegment && token % scenario_.segment_length == 0;
    double now = compute(0.0, costs_.backbone_s + context * costs_.context_backbone_s);
    std::vector<double> loaded(static_cast<size_t>(costs_.num_moe_layers), 0.0);
    if (chooses) {
      now = compute(now, costs_.choice_s);
      for (double& end : loaded) end = storage_.run(now, load_s_);
    }
    for (double& end : loaded) {
      now = compute(now, costs_.attention_s + context * costs_.context_attention_s);
      if (scenario_.loading == ExpertLoading::kPerToken) end = storage_.run(now, load_s_);
      stall_s_ += std::max(0.0, end - now);
      now = compute(end, costs_.experts_s);
    }
    compute(now, costs_.head_s);
  }

  double compute(double ready, double duration) { return processor_.run(ready, duration); }

  const DecodeCosts& costs_;
  const DecodeScenario& scenario_;
  double load_s_;
  Resource processor_;
  Resource storage_;
  double stall_s_ = 0;
};

}  // namespace

double Resource::run(double ready, double duration) {
  free_at_ = std::max(free_at_, ready) + duration;
  return free_at_;
}

double DecodeTimes::total_s() const { return std::accumulate(token_s.begin(), token_s.end(), 0.0); }

DecodeTimes simulate_decode(const DecodeCosts& costs, const DecodeScenario& scenario) {
  return DecodeSimulation(costs, scenario).run();
}

}  // namespace smoe
