#include "smoe/infer/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "smoe/core/error.h"

namespace smoe {
namespace {

using Candidate = Sampler::Candidate;

// A total order, so that sets and samples do not depend on the algorithm that ranks them.
bool is_likelier(const Candidate& a, const Candidate& b) {
  return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
}

}  // namespace

void check_sampling(const SamplingConfig& config) {
  SMOE_CHECK(ConfigError, std::isfinite(config.temperature) && config.temperature >= 0,
             "temperature is {}; allowed: 0 (greedy) and above", config.temperature);
  SMOE_CHECK(ConfigError, config.top_k >= 0, "top_k is {}; allowed: 0 (all tokens) and above", config.top_k);
  SMOE_CHECK(ConfigError, config.top_p > 0 && config.top_p <= 1,
             "top_p is {}; allowed: above 0, up to 1 (all tokens)", config.top_p);
  SMOE_CHECK(ConfigError, config.min_p >= 0 && config.min_p <= 1, "min_p is {}; allowed: 0 (all tokens) to 1",
             config.min_p);
}

int32_t greedy_token(std::span<const float> logits) {
  SMOE_ASSERT(!logits.empty());
  size_t best = 0;
  for (size_t token = 0; token < logits.size(); ++token) {
    SMOE_CHECK(NumericError,
               !std::isnan(logits[token]) && logits[token] < std::numeric_limits<float>::infinity(),
               "the logit of token {} is {}; the weights of the checkpoint hold non-finite values or the "
               "forward pass overflows",
               token, logits[token]);
    if (logits[token] > logits[best]) best = token;
  }
  return static_cast<int32_t>(best);
}

double token_logprob(std::span<const float> logits, int32_t token) {
  const auto largest = static_cast<double>(*std::ranges::max_element(logits));
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return static_cast<double>(logits[static_cast<size_t>(token)]) - largest - std::log(sum);
}

Sampler::Sampler(const SamplingConfig& config) : config_(config), random_(config.seed) {
  check_sampling(config);
}

const std::vector<Candidate>& Sampler::candidates(std::span<const float> logits) {
  SMOE_ASSERT(config_.temperature > 0);
  const auto largest = static_cast<double>(logits[static_cast<size_t>(greedy_token(logits))]);
  candidates_.clear();
  candidates_.reserve(logits.size());
  for (size_t token = 0; token < logits.size(); ++token) {
    candidates_.push_back({static_cast<int32_t>(token), static_cast<double>(logits[token]) - largest});
  }
  // Ranking needs no exponentials, so top-k comes before them; the ranks are the same either way.
  keep_top_k();
  for (Candidate& candidate : candidates_)
    candidate.weight = std::exp(candidate.weight / config_.temperature);
  keep_top_p();
  // The most probable token has weight 1, so min-p never empties the list.
  std::erase_if(candidates_, [&](const Candidate& candidate) { return candidate.weight < config_.min_p; });
  std::ranges::sort(candidates_, {}, &Candidate::token);
  return candidates_;
}

void Sampler::keep_top_k() {
  const auto count = static_cast<size_t>(config_.top_k);
  if (count == 0 || count >= candidates_.size()) return;
  std::nth_element(candidates_.begin(), candidates_.begin() + config_.top_k, candidates_.end(), is_likelier);
  candidates_.resize(count);
}

void Sampler::keep_top_p() {
  if (config_.top_p >= 1) return;
  double total = 0.0;
  for (const Candidate& candidate : candidates_) total += candidate.weight;
  // A heap gives the few most probable tokens without sorting the vocabulary.
  const auto is_unlikelier = [](const Candidate& a, const Candidate& b) { return is_likelier(b, a); };
  std::ranges::make_heap(candidates_, is_unlikelier);
  auto end = candidates_.end();
  for (double kept = 0.0; kept < config_.top_p * total && end != candidates_.begin();) {
    std::ranges::pop_heap(candidates_.begin(), end, is_unlikelier);
    --end;
    kept += end->weight;
  }
  candidates_.erase(candidates_.begin(), end);
}

int32_t Sampler::sample(std::span<const float> logits) {
  if (config_.temperature == 0) return greedy_token(logits);
  const std::vector<Candidate>& kept = candidates(logits);
  double total = 0.0;
  for (const Candidate& candidate : kept) total += candidate.weight;
  double left = random_.uniform() * total;
  for (const Candidate& candidate : kept) {
    left -= candidate.weight;
    if (left < 0) return candidate.token;
  }
  // Rounding used up the weights: the last token that can be drawn at all.
  const auto last = std::find_if(kept.rbegin(), kept.rend(), [](const auto& c) { return c.weight > 0; });
  return last->token;
}

}  // namespace smoe
