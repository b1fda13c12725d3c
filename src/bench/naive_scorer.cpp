// Shape legend: B rows, T tokens, D model width, V vocabulary.
#include "naive_scorer.h"

#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <numeric>

#include "smoe/train/model_input.h"

namespace smoe {
namespace {

// The last id of the continuation is only predicted.
int64_t row_length(const Request& request) {
  return std::ssize(request.context) + std::ssize(request.continuation) - 1;
}

}  // namespace

NaiveScorer::NaiveScorer(Forward forward, at::Tensor weight_VD, int64_t segment_length,
                         int64_t rows_per_batch)
    : forward_(std::move(forward)),
      weight_VD_(std::move(weight_VD)),
      segment_length_(segment_length),
      rows_per_batch_(rows_per_batch) {}

std::vector<RequestScore> NaiveScorer::score(const std::vector<Request>& requests, int64_t budget) const {
  const c10::InferenceMode no_gradients;
  // Rows of like length together, the longest first, as evaluation harnesses do.
  std::vector<size_t> order(requests.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return row_length(requests[a]) > row_length(requests[b]); });
  std::vector<RequestScore> scores(requests.size());
  for (std::span<const size_t> rest = order; !rest.empty();) {
    const auto of_batch = rest.first(std::min(rest.size(), static_cast<size_t>(rows_per_batch_)));
    score_batch(requests, of_batch, budget, scores);
    rest = rest.subspan(of_batch.size());
  }
  return scores;
}

void NaiveScorer::score_batch(const std::vector<Request>& requests, std::span<const size_t> of_batch,
                              int64_t budget, std::vector<RequestScore>& scores) const {
  const int64_t longest = row_length(requests[of_batch.front()]);
  const int64_t num_tokens = (longest + segment_length_ - 1) / segment_length_ * segment_length_;
  const auto num_rows = std::ssize(of_batch);
  Batch batch;
  batch.tokens_BT = at::zeros({num_rows, num_tokens}, at::kLong);
  for (int64_t row = 0; row < num_rows; ++row) {
    const Request& request = requests[of_batch[static_cast<size_t>(row)]];
    int64_t* ids = batch.tokens_BT.data_ptr<int64_t>() + row * num_tokens;
    ids = std::copy(request.context.begin(), request.context.end(), ids);
    std::copy(request.continuation.begin(), request.continuation.end() - 1, ids);
  }
  const ModelInput input = make_model_input(
      batch, segment_length_, std::vector<int64_t>(static_cast<size_t>(num_rows), budget), at::kCPU);
  const at::Tensor logits_BTV = at::matmul(forward_(input), weight_VD_.t());
  const at::Tensor log_prob_BTV = at::log_softmax(logits_BTV, -1);
  const at::Tensor best_BT = logits_BTV.argmax(-1);
  const auto log_prob = log_prob_BTV.accessor<float, 3>();
  const auto best = best_BT.accessor<int64_t, 2>();
  for (int64_t row = 0; row < num_rows; ++row) {
    const Request& request = requests[of_batch[static_cast<size_t>(row)]];
    RequestScore& score = scores[of_batch[static_cast<size_t>(row)]];
    int64_t position = std::ssize(request.context) - 1;
    for (const int32_t id : request.continuation) {
      score.sum += log_prob[row][position][id];
      score.is_greedy = score.is_greedy && best[row][position] == id;
      ++position;
    }
  }
}

}  // namespace smoe
