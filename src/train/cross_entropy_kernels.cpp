#include "cross_entropy_kernels.h"

#include <algorithm>
#include <cmath>

#include "smoe/core/vector_clones.h"
#include "smoe/core/vector_math.h"

namespace smoe {
namespace {

template <class Scalar>
SMOE_INLINE Scalar largest(const Scalar* logits, int64_t count) {
  Scalar maximum = logits[0];
#pragma omp simd reduction(max : maximum)
  for (int64_t i = 0; i < count; ++i) maximum = logits[i] > maximum ? logits[i] : maximum;
  return maximum;
}

// The sum runs in the logits' own type over blocks, and in double over the blocks.
template <class Scalar>
SMOE_INLINE double exponentiate(Scalar* logits, int64_t count, Scalar maximum) {
  constexpr int64_t kBlock = 1024;
  double total = 0;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    Scalar* block = logits + begin;
    const int64_t size = std::min(kBlock, count - begin);
    Scalar sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < size; ++i) {
      block[i] = bounded_exponential(block[i] - maximum);
      sum += block[i];
    }
    total += static_cast<double>(sum);
  }
  return total;
}

template <class Scalar>
SMOE_INLINE TokenLoss token_loss(Scalar* logits, int64_t count, const TokenTarget& target,
                                 bool wants_gradient) {
  const Scalar maximum = largest(logits, count);
  const auto target_logit = static_cast<double>(logits[target.index]);
  const double sum = exponentiate(logits, count, maximum);
  TokenLoss loss;
  loss.log_sum = static_cast<double>(maximum) + std::log(sum);
  loss.cross_entropy = loss.log_sum - target_logit;
  if (!wants_gradient) return loss;
  const auto factor =
      static_cast<Scalar>(target.weight * (1.0 + 2.0 * target.z_loss_weight * loss.log_sum) / sum);
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) logits[i] *= factor;
  logits[target.index] -= static_cast<Scalar>(target.weight);
  return loss;
}

// Blocks as in exponentiate().
template <class Scalar>
SMOE_INLINE SoftmaxSum sum_of_softmax(const Scalar* logits, int64_t count) {
  constexpr int64_t kBlock = 1024;
  const Scalar maximum = largest(logits, count);
  double total = 0;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const Scalar* block = logits + begin;
    const int64_t size = std::min(kBlock, count - begin);
    Scalar sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < size; ++i) sum += bounded_exponential(block[i] - maximum);
    total += static_cast<double>(sum);
  }
  return {static_cast<double>(maximum), total};
}

}  // namespace

SMOE_VECTOR_CLONES TokenLoss token_cross_entropy(float* logits, int64_t vocab_size, const TokenTarget& target,
                                                 bool wants_gradient) {
  return token_loss(logits, vocab_size, target, wants_gradient);
}
SMOE_VECTOR_CLONES TokenLoss token_cross_entropy(double* logits, int64_t vocab_size,
                                                 const TokenTarget& target, bool wants_gradient) {
  return token_loss(logits, vocab_size, target, wants_gradient);
}
SMOE_VECTOR_CLONES SoftmaxSum softmax_sum(const float* logits, int64_t count) {
  return sum_of_softmax(logits, count);
}
SMOE_VECTOR_CLONES SoftmaxSum softmax_sum(const double* logits, int64_t count) {
  return sum_of_softmax(logits, count);
}

}  // namespace smoe
