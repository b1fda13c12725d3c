// Log-likelihoods of requests under a model at one budget.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "smoe/eval/request_batch.h"
#include "smoe/infer/prefix_cache.h"

namespace smoe {

struct RequestScore {
  double sum = 0.0;       // of natural-log probabilities of the continuation
  bool is_greedy = true;  // every continuation id is the arg-max (lowest index on ties)
};

class Scorer {
 public:
  // `model` must outlive the scorer; its own selector position takes the place of the options'.
  Scorer(const Model& model, const PackingOptions& options)
      : model_(model), options_(options), prefixes_(model) {
    options_.selector_position = model.config().routing.selector_position;
  }

  // Scores in the order of `requests`, computed longest first among those that share a prefix. `on_progress`
  // receives the number of requests done since its last call. Throws NumericError if a sum is not finite.
  std::vector<RequestScore> score(const std::vector<Request>& requests, int64_t budget,
                                  const std::function<void(int64_t)>& on_progress = {});

  // Prefixes computed so far; they are kept from call to call.
  int64_t num_computed_prefixes() const { return prefixes_.num_computed(); }

 private:
  void score_trees(const std::vector<Request>& requests, std::span<const RequestTree> trees, int64_t budget,
                   std::vector<RequestScore>& scores, const std::function<void(int64_t)>& on_progress);
  void add_scores(const at::Tensor& hidden_BTD, const std::vector<ScoredToken>& targets,
                  std::vector<RequestScore>& scores) const;

  const Model& model_;
  PackingOptions options_;
  PrefixCache prefixes_;
};

}  // namespace smoe
