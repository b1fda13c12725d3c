#include "smoe/eval/request_batch.h"

#include <algorithm>
#include <numeric>

#include "smoe/core/error.h"

namespace smoe {
namespace {

// A run of the row that continues the shared context.
struct Branch {
  int64_t begin = 0;
  int64_t length = 0;
};

// Writes one row of a batch.
class RowWriter {
 public:
  RowWriter(RequestBatch& batch, int64_t row, const PackingOptions& options)
      : batch_(batch),
        row_(row),
        num_tokens_(batch.input.tokens_BT.size(1)),
        options_(options),
        tokens_(batch.input.tokens_BT.mutable_data_ptr<int64_t>() + row * num_tokens_) {
    if (batch.input.positions_BT.defined()) {
      positions_ = batch.input.positions_BT.mutable_data_ptr<int64_t>() + row * num_tokens_;
      allowed_ = batch.input.attention_BTT.mutable_data_ptr<bool>() + row * num_tokens_ * num_tokens_;
    }
  }

  void write(const std::vector<Request>& requests, const RequestTree& tree) {
    const Request& first = requests[tree.requests.front()];
    prefix_length_ = first.shared_prefix;
    context_length_ = std::ssize(first.context) - prefix_length_;
    write_run(first.context.data() + prefix_length_, 0, context_length_, 0);
    add_context_segments();
    // Every branch's first id is predicted by the last context token; those targets come first, so that
    // targets ascend in position.
    for (const size_t request : tree.requests) {
      add_target(context_length_ - 1, requests[request].continuation.front(), request);
    }
    int64_t begin = context_length_;
    for (const size_t request : tree.requests) {
      const std::vector<int32_t>& continuation = requests[request].continuation;
      const Branch branch = {begin, std::ssize(continuation) - 1};
      write_run(continuation.data(), branch.begin, branch.length, context_length_);
      add_branch_segments(branch);
      for (int64_t i = 0; i < branch.length; ++i) {
        add_target(branch.begin + i, continuation[static_cast<size_t>(i + 1)], request);
      }
      begin += branch.length;
    }
    write_padding(begin);
    batch_.num_requests += std::ssize(tree.requests);
  }

 private:
  // `length` ids at `begin` of the row, at position `position` after the prefix: they see the context and
  // their own run.
  void write_run(const int32_t* ids, int64_t begin, int64_t length, int64_t position) {
    for (int64_t i = 0; i < length; ++i) {
      tokens_[begin + i] = ids[i];
      if (allowed_ == nullptr) continue;
      positions_[begin + i] = prefix_length_ + position + i;
      bool* allowed = allowed_ + (begin + i) * num_tokens_;
      if (begin > 0) std::fill(allowed, allowed + context_length_, true);
      std::fill(allowed + begin, allowed + begin + i + 1, true);
    }
  }

  void write_padding(int64_t begin) {
    if (begin == num_tokens_) return;
    for (int64_t i = begin; i < num_tokens_ && allowed_ != nullptr; ++i) allowed_[i * num_tokens_ + i] = true;
    add_segment(begin, num_tokens_, begin);
  }

  // A shared prefix is whole segments, so that segments may be counted from its end.
  void add_context_segments() {
    if (options_.routing == RoutingMode::kLastPromptToken) {
      add_segment(0, context_length_, context_length_ - 1);
      return;
    }
    for (int64_t begin = 0; begin < context_length_; begin += options_.segment_length) {
      add_segment(begin, std::min(begin + options_.segment_length, context_length_), begin);
    }
  }

  void add_branch_segments(const Branch& branch) {
    const int64_t length = options_.segment_length;
    // The run that the context decides: the rest of its last segment, or the first S tokens.
    int64_t first = length;
    int64_t selector = context_length_ - 1;
    if (options_.routing == RoutingMode::kSegments) {
      first = (length - context_length_ % length) % length;
      selector = context_length_ / length * length;
    }
    first = std::min(first, branch.length);
    const int64_t end = branch.begin + branch.length;
    if (first > 0) add_segment(branch.begin, branch.begin + first, selector);
    for (int64_t begin = branch.begin + first; begin < end; begin += length) {
      add_segment(begin, std::min(begin + length, end), begin);
    }
  }

  void add_segment(int64_t begin, int64_t end, int64_t selector) {
    batch_.input.segments.segments.push_back({row_, begin, end, selector});
  }
  void add_target(int64_t position, int64_t token, size_t request) {
    batch_.targets.push_back({row_ * num_tokens_ + position, token, request});
  }

  RequestBatch& batch_;
  int64_t row_;
  int64_t num_tokens_;
  const PackingOptions& options_;
  int64_t* tokens_;
  int64_t* positions_ = nullptr;
  bool* allowed_ = nullptr;
  int64_t prefix_length_ = 0;
  int64_t context_length_ = 0;  // without the prefix
};

// Without branches the plain causal mask, which needs no memory, says the same.
bool needs_mask(const std::vector<Request>& requests, const RequestTree& tree) {
  return std::ranges::count_if(tree.requests,
                               [&](size_t request) { return requests[request].continuation.size() > 1; }) > 1;
}

}  // namespace

std::vector<RequestTree> build_request_trees(const std::vector<Request>& requests) {
  std::vector<RequestTree> trees;
  for (size_t i = 0; i < requests.size(); ++i) {
    SMOE_ASSERT(requests[i].shared_prefix >= 0 &&
                std::ssize(requests[i].context) > requests[i].shared_prefix &&
                !requests[i].continuation.empty());
    const bool shares =
        i > 0 && requests[i].group == requests[i - 1].group && requests[i].context == requests[i - 1].context;
    if (!shares) trees.push_back({{}, std::ssize(requests[i].context) - requests[i].shared_prefix});
    trees.back().requests.push_back(i);
    trees.back().length += std::ssize(requests[i].continuation) - 1;
  }
  std::ranges::stable_sort(trees, std::greater<>(), &RequestTree::length);
  return trees;
}

RequestBatch pack_request_trees(const std::vector<Request>& requests, std::span<const RequestTree> trees,
                                const PackingOptions& options, int64_t budget) {
  const int64_t num_rows = std::ssize(trees);
  int64_t num_tokens = 0;
  bool masked = false;
  for (const RequestTree& tree : trees) {
    num_tokens = std::max(num_tokens, tree.length);
    masked = masked || needs_mask(requests, tree);
  }
  RequestBatch batch;
  batch.input.tokens_BT = at::zeros({num_rows, num_tokens}, at::kLong);
  if (masked) {
    batch.input.positions_BT = at::zeros({num_rows, num_tokens}, at::kLong);
    batch.input.attention_BTT = at::zeros({num_rows, num_tokens, num_tokens}, at::kBool);
  }
  batch.input.segments.num_rows = num_rows;
  batch.input.segments.num_tokens = num_tokens;
  batch.input.budget_of_row.assign(static_cast<size_t>(num_rows), budget);
  for (int64_t row = 0; row < num_rows; ++row) {
    RowWriter(batch, row, options).write(requests, trees[static_cast<size_t>(row)]);
  }
  return batch;
}

}  // namespace smoe
