// From the logits of one position to the next token. Works on plain floats, so that it is the same on every
// device and can be tested without a model.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "smoe/core/random.h"

namespace smoe {

// The filters apply in this order: temperature, top-k, top-p, min-p (as in Hugging Face).
struct SamplingConfig {
  double temperature = 1.0;  // divides the logits; 0: greedy
  int64_t top_k = 0;         // keep the k most probable tokens; 0: all
  double top_p = 1.0;        // keep the fewest most probable tokens that hold this share; 1: all
  double min_p = 0.0;        // keep tokens at least this fraction as probable as the most probable; 0: all
  uint64_t seed = 0;         // of the request's own random stream
};

// Throws ConfigError naming the setting, its value and the allowed range.
void check_sampling(const SamplingConfig& config);

// Index of the largest logit; ties go to the lowest index. Throws NumericError on NaN and on +inf.
int32_t greedy_token(std::span<const float> logits);

// log softmax(logits)[token], in float64.
double token_logprob(std::span<const float> logits, int32_t token);

// The choices of one request. Its random stream is its own and moves by one number a token, so that what else
// is computed beside the request does not matter.
class Sampler {
 public:
  struct Candidate {
    int32_t token = 0;
    double weight = 0.0;  // probability relative to that of the most probable token
  };

  // Throws ConfigError as check_sampling does.
  explicit Sampler(const SamplingConfig& config);

  // Throws NumericError on NaN and on +inf.
  int32_t sample(std::span<const float> logits);

  // What passes the filters, ascending by token. Equal logits are ranked by token, lowest first. Valid until
  // the next call. Needs a temperature above 0.
  const std::vector<Candidate>& candidates(std::span<const float> logits);

 private:
  void keep_top_k();
  void keep_top_p();

  SamplingConfig config_;
  SplitMix64 random_;
  std::vector<Candidate> candidates_;
};

}  // namespace smoe
