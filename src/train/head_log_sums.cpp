#include "head_log_sums.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "cross_entropy_kernels.h"

// Shape legend: N tokens, D model width, V vocabulary, P pieces of the vocabulary; M tokens and W words of a
// tile.
namespace smoe {
namespace {

// A tile of logits is 512 KB, so that it is still in a core's second cache when it is summed, as are the
// weights of its words for the next tokens.
constexpr int64_t kTileTokens = 256;
constexpr int64_t kTileWords = 512;

struct Pieces {
  at::Tensor maximum_PN;  // float64, of a piece's logits
  at::Tensor sum_PN;      // float64, of exp(logit - maximum)
  at::Tensor target_logit_N;
};

// The logits of tokens from `token` on and words from `word` on.
template <class Scalar>
void sum_tile(const at::Tensor& logits_MW, const int64_t* targets, int64_t token, int64_t word,
              const Pieces& pieces) {
  const int64_t num_words = logits_MW.size(1);
  const int64_t first = word / kTileWords * pieces.maximum_PN.size(1) + token;
  for (int64_t row = 0; row < logits_MW.size(0); ++row) {
    const Scalar* logits = logits_MW.const_data_ptr<Scalar>() + row * logits_MW.stride(0);
    const SoftmaxSum sum = softmax_sum(logits, num_words);
    pieces.maximum_PN.mutable_data_ptr<double>()[first + row] = sum.maximum;
    pieces.sum_PN.mutable_data_ptr<double>()[first + row] = sum.sum;
    const int64_t target = targets[token + row] - word;
    if (target >= 0 && target < num_words) {
      pieces.target_logit_N.mutable_data_ptr<double>()[token + row] = static_cast<double>(logits[target]);
    }
  }
}

// Tiles in the order of the words, so that a thread reads its share of the weights once.
template <class Scalar>
void sum_tiles(const at::Tensor& hidden_ND, const at::Tensor& weight_VD, const at::Tensor& targets_N,
               const Pieces& pieces) {
  const int64_t num_tokens = hidden_ND.size(0);
  const int64_t vocab_size = weight_VD.size(0);
  const int64_t blocks = (num_tokens + kTileTokens - 1) / kTileTokens;
  const int64_t num_tiles = pieces.maximum_PN.size(0) * blocks;
  at::parallel_for(0, num_tiles, 1, [&](int64_t begin, int64_t end) {
    const at::NoGradGuard no_gradients;  // threads do not inherit it
    const at::Tensor scratch_MW =
        at::empty({std::min(kTileTokens, num_tokens), std::min(kTileWords, vocab_size)}, hidden_ND.options());
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t word = tile / blocks * kTileWords;
      const int64_t token = tile % blocks * kTileTokens;
      const int64_t num_rows = std::min(kTileTokens, num_tokens - token);
      const int64_t num_words = std::min(kTileWords, vocab_size - word);
      at::Tensor logits_MW = scratch_MW.narrow(0, 0, num_rows).narrow(1, 0, num_words);
      at::mm_out(logits_MW, hidden_ND.narrow(0, token, num_rows), weight_VD.narrow(0, word, num_words).t());
      sum_tile<Scalar>(logits_MW, targets_N.const_data_ptr<int64_t>(), token, word, pieces);
    }
  });
}

at::Tensor log_sums(const Pieces& pieces) {
  const int64_t num_pieces = pieces.maximum_PN.size(0);
  const int64_t num_tokens = pieces.maximum_PN.size(1);
  at::Tensor log_sum_N = at::empty({num_tokens}, at::kDouble);
  const double* maxima = pieces.maximum_PN.const_data_ptr<double>();
  const double* sums = pieces.sum_PN.const_data_ptr<double>();
  double* log_sum = log_sum_N.mutable_data_ptr<double>();
  at::parallel_for(0, num_tokens, 1024, [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      double maximum = maxima[token];
      for (int64_t p = 1; p < num_pieces; ++p) maximum = std::max(maximum, maxima[p * num_tokens + token]);
      double sum = 0;
      for (int64_t i = token; i < num_pieces * num_tokens; i += num_tokens) {
        sum += sums[i] * std::exp(maxima[i] - maximum);
      }
      log_sum[token] = maximum + std::log(sum);
    }
  });
  return log_sum_N;
}

}  // namespace

HeadLogSums head_log_sums(const at::Tensor& hidden_ND, const at::Tensor& weight_VD,
                          const at::Tensor& targets_N) {
  const int64_t num_tokens = hidden_ND.size(0);
  const std::vector<int64_t> shape = {(weight_VD.size(0) + kTileWords - 1) / kTileWords, num_tokens};
  const Pieces pieces{at::empty(shape, at::kDouble), at::empty(shape, at::kDouble),
                      at::empty({num_tokens}, at::kDouble)};
  const at::Tensor contiguous_N = targets_N.contiguous();
  AT_DISPATCH_FLOATING_TYPES(hidden_ND.scalar_type(), "head_log_sums",
                             [&] { sum_tiles<scalar_t>(hidden_ND, weight_VD, contiguous_N, pieces); });
  return {log_sums(pieces), pieces.target_logit_N};
}

}  // namespace smoe
