#include "smoe/infer/generation.h"

#include <stdexcept>

namespace smoe {
namespace {

double ratio(double numerator, double denominator) { return denominator > 0 ? numerator / denominator : 0.0; }

}  // namespace

std::string finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kEos:
      return "eos";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kFailed:
      return "failed";
  }
  throw std::logic_error("unknown FinishReason");
}

double GenerationStats::prefill_tokens_per_s() const {
  return ratio(static_cast<double>(prompt_tokens), prefill_s);
}

double GenerationStats::decode_tokens_per_s() const {
  return ratio(static_cast<double>(decode_tokens), decode_s);
}

double GenerationStats::kept_share() const {
  return ratio(static_cast<double>(kept_experts), static_cast<double>(selected_experts));
}

}  // namespace smoe
