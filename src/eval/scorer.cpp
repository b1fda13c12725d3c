// Shape legend: B rows, T tokens, D model width, N predicted positions, V vocabulary, M scored ids.
#include "smoe/eval/scorer.h"

#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "smoe/core/error.h"

namespace smoe {
namespace {

// Positions whose logits exist at one time: 1024 rows of a vocabulary of 50,000 in float32 take 200 MB.
constexpr int64_t kHeadChunk = 1024;

at::Tensor index_tensor(const std::vector<int64_t>& values, at::Device device) {
  return at::tensor(values, at::kLong).to(device);
}

// The log-probability and arg-max of every target in [begin, end), whose positions are `positions`.
struct ChunkScores {
  at::Tensor log_prob_M;  // float64 on the CPU
  at::Tensor greedy_M;    // bool on the CPU
};

ChunkScores score_chunk(const at::Tensor& hidden_ND, const at::Tensor& weight_VD,
                        const std::vector<int64_t>& rows, const std::vector<int64_t>& ids) {
  const at::Tensor logits_NV = at::matmul(hidden_ND, weight_VD.t()).to(at::kFloat);
  const at::Tensor log_prob_NV = at::log_softmax(logits_NV, -1);
  const at::Tensor best_N = logits_NV.argmax(-1);
  const at::Tensor rows_M = index_tensor(rows, hidden_ND.device());
  const at::Tensor ids_M = index_tensor(ids, hidden_ND.device());
  const at::Tensor flat_M = rows_M * weight_VD.size(0) + ids_M;
  return {log_prob_NV.flatten().index_select(0, flat_M).to(at::kCPU, at::kDouble),
          best_N.index_select(0, rows_M).eq(ids_M).cpu()};
}

}  // namespace

void Scorer::add_scores(const at::Tensor& hidden_BTD, const std::vector<ScoredToken>& targets,
                        std::vector<RequestScore>& scores) const {
  const at::Tensor hidden_flat = hidden_BTD.flatten(0, 1);
  for (size_t begin = 0; begin < targets.size();) {
    std::vector<int64_t> positions, rows, ids;
    size_t end = begin;
    for (; end < targets.size(); ++end) {
      const bool is_new = positions.empty() || targets[end].position != positions.back();
      if (is_new && std::ssize(positions) == kHeadChunk) break;
      if (is_new) positions.push_back(targets[end].position);
      rows.push_back(std::ssize(positions) - 1);
      ids.push_back(targets[end].token);
    }
    const at::Tensor hidden_ND = hidden_flat.index_select(0, index_tensor(positions, hidden_flat.device()));
    const ChunkScores chunk = score_chunk(hidden_ND, model_.output_weight(), rows, ids);
    const double* log_prob = chunk.log_prob_M.const_data_ptr<double>();
    const bool* greedy = chunk.greedy_M.const_data_ptr<bool>();
    for (size_t i = begin; i < end; ++i) {
      RequestScore& score = scores[targets[i].request];
      score.sum += log_prob[i - begin];
      score.is_greedy = score.is_greedy && greedy[i - begin];
    }
    begin = end;
  }
}

void Scorer::score_trees(const std::vector<Request>& requests, std::span<const RequestTree> trees,
                         int64_t budget, std::vector<RequestScore>& scores,
                         const std::function<void(int64_t)>& on_progress) {
  const Request& first = requests[trees.front().requests.front()];
  std::shared_ptr<const KvCache> prefix;
  if (first.shared_prefix > 0) {
    const auto tokens = std::span(first.context).first(static_cast<size_t>(first.shared_prefix));
    prefix = prefixes_.get(tokens, budget, options_.segment_length);
  }
  // Only the CPU attends to a prefix that is stored once; elsewhere each row has a copy, which takes room
  // too.
  const int64_t copied = model_.device().is_cpu() ? 0 : first.shared_prefix;
  while (!trees.empty()) {
    // Trees come longest first, so the first one of a batch decides its width.
    const int64_t rows = std::max<int64_t>(1, options_.batch_tokens / (trees.front().length + copied));
    const auto of_batch = trees.first(std::min(trees.size(), static_cast<size_t>(rows)));
    RequestBatch batch = pack_request_trees(requests, of_batch, options_, budget);
    for (at::Tensor* tensor :
         {&batch.input.tokens_BT, &batch.input.positions_BT, &batch.input.attention_BTT}) {
      if (tensor->defined()) *tensor = tensor->to(model_.device());
    }
    batch.input.shared_prefix = prefix.get();
    add_scores(model_.forward(batch.input).hidden_BTD, batch.targets, scores);
    if (on_progress) on_progress(batch.num_requests);
    trees = trees.subspan(of_batch.size());
  }
}

std::vector<RequestScore> Scorer::score(const std::vector<Request>& requests, int64_t budget,
                                        const std::function<void(int64_t)>& on_progress) {
  const c10::InferenceMode no_gradients;
  std::map<std::vector<int32_t>, std::vector<RequestTree>> trees_of_prefix;
  for (RequestTree& tree : build_request_trees(requests, options_.routing, options_.selector_position)) {
    const Request& first = requests[tree.requests.front()];
    trees_of_prefix[{first.context.begin(), first.context.begin() + first.shared_prefix}].push_back(
        std::move(tree));
  }
  std::vector<RequestScore> scores(requests.size());
  for (const auto& [prefix, trees] : trees_of_prefix) {
    score_trees(requests, trees, budget, scores, on_progress);
  }
  for (size_t i = 0; i < scores.size(); ++i) {
    SMOE_CHECK(
        NumericError, std::isfinite(scores[i].sum),
        "request {} of {}: the log-likelihood is {}; the weights of the checkpoint hold non-finite values or "
        "the forward pass overflows",
        i, scores.size(), scores[i].sum);
  }
  return scores;
}

}  // namespace smoe
