// Softmax and cross-entropy of one token on the CPU: three passes over logits that the first of them has
// brought into the cache. On x86 with GCC the loops are compiled for several instruction sets and chosen at
// load.
#pragma once

#include <cstdint>

namespace smoe {

// What the gradient of a token's loss needs besides its logits.
struct TokenTarget {
  int64_t index = 0;
  double weight = 0;
  double z_loss_weight = 0;
};

struct TokenLoss {
  double cross_entropy = 0;
  double log_sum = 0;
};

// The loss of logits [V]. With `wants_gradient` they become the gradient of
//   weight * (cross_entropy + z_loss_weight * log_sum^2)
// and are left without meaning otherwise.
TokenLoss token_cross_entropy(float* logits, int64_t vocab_size, const TokenTarget& target,
                              bool wants_gradient);
TokenLoss token_cross_entropy(double* logits, int64_t vocab_size, const TokenTarget& target,
                              bool wants_gradient);

// The largest of `count` > 0 logits, and the sum of exp(logit - maximum).
struct SoftmaxSum {
  double maximum = 0;
  double sum = 0;
};
SoftmaxSum softmax_sum(const float* logits, int64_t count);
SoftmaxSum softmax_sum(const double* logits, int64_t count);

}  // namespace smoe
