#include "smoe/eval/request_batch.h"

#include <algorithm>
#include <numeric>

#include "smoe/core/error.h"
#include "smoe/routing/chat_segments.h"
#include "smoe/routing/segment_runs.h"

namespace smoe {
namespace {

// Below this many common ids a row of several contexts is hardly shorter than a row for each.
constexpr int64_t kShortestTrunk = 8;

// What follows the trunk in one request: the rest of the context, and the continuation without its last id.
struct Branch {
  int64_t begin = 0;
  int64_t context = 0;  // ids of the context
  int64_t length = 0;
};

Branch branch_of(const Request& request, int64_t trunk, int64_t begin) {
  const int64_t context = std::ssize(request.context) - request.shared_prefix - trunk;
  return {begin, context, context + std::ssize(request.continuation) - 1};
}

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
    trunk_length_ = tree.trunk;
    write_run(first.context.data() + prefix_length_, 0, trunk_length_, 0);
    add_trunk_segments(first.responses);
    // Where the trunk is the whole context its last token predicts the first id; these targets come first, so
    // that targets ascend in position.
    for (const size_t request : tree.requests) {
      if (branch_of(requests[request], trunk_length_, 0).context > 0) continue;
      add_target(trunk_length_ - 1, requests[request].continuation.front(), request);
    }
    int64_t begin = trunk_length_;
    for (const size_t request : tree.requests) {
      const Branch branch = branch_of(requests[request], trunk_length_, begin);
      write_branch(requests[request], request, branch);
      begin += branch.length;
    }
    write_padding(begin);
    batch_.num_requests += std::ssize(tree.requests);
  }

 private:
  void write_branch(const Request& request, size_t index, const Branch& branch) {
    const int32_t* rest = request.context.data() + prefix_length_ + trunk_length_;
    std::vector<int32_t> ids(rest, rest + branch.context);
    ids.insert(ids.end(), request.continuation.begin(), request.continuation.end() - 1);
    write_run(ids.data(), branch.begin, branch.length, trunk_length_);
    add_branch_segments(branch);
    const int64_t num_ids = std::ssize(request.continuation);
    for (int64_t i = branch.context > 0 ? 0 : 1; i < num_ids; ++i) {
      add_target(branch.begin + branch.context + i - 1, request.continuation[static_cast<size_t>(i)], index);
    }
  }

  // `length` ids at `begin` of the row, at position `position` after the prefix: they see the trunk and their
  // own run.
  void write_run(const int32_t* ids, int64_t begin, int64_t length, int64_t position) {
    for (int64_t i = 0; i < length; ++i) {
      tokens_[begin + i] = ids[i];
      if (allowed_ == nullptr) continue;
      positions_[begin + i] = prefix_length_ + position + i;
      bool* allowed = allowed_ + (begin + i) * num_tokens_;
      if (begin > 0) std::fill(allowed, allowed + trunk_length_, true);
      std::fill(allowed + begin, allowed + begin + i + 1, true);
    }
  }

  void write_padding(int64_t begin) {
    if (begin == num_tokens_) return;
    for (int64_t i = begin; i < num_tokens_ && allowed_ != nullptr; ++i) allowed_[i * num_tokens_ + i] = true;
    add_segment({row_, begin, num_tokens_, begin});
  }

  // A shared prefix is whole segments, so that segments may be counted from its end.
  void add_trunk_segments(std::vector<ResponseSpan> responses) {
    if (options_.routing == RoutingMode::kLastPromptToken) {
      // Segments have no meaning for models that share prefixes in this mode.
      if (prefix_length_ > 0) responses.clear();
      // The answer that follows the context, so that what stands before it is a prompt.
      responses.push_back({trunk_length_, trunk_length_});
      const ChatRow dialogue = {{0, trunk_length_, std::move(responses)}};
      const SegmentMap map =
          chat_segments({dialogue}, trunk_length_, options_.segment_length, options_.selector_position);
      for (const Segment& segment : map.segments) {
        add_segment({row_, segment.begin, segment.end, segment.selector, segment.selector_tokens});
      }
      return;
    }
    for (int64_t begin = 0; begin < trunk_length_; begin += options_.segment_length) {
      add_segment(run(begin, std::min(begin + options_.segment_length, trunk_length_)));
    }
  }

  void add_branch_segments(const Branch& branch) {
    const int64_t length = options_.segment_length;
    // The run that the trunk decides: the rest of its last segment, or the first S tokens.
    int64_t first = length;
    Segment of_trunk{row_, branch.begin, branch.begin, trunk_length_ - 1};
    if (options_.routing == RoutingMode::kSegments) {
      first = (length - trunk_length_ % length) % length;
      of_trunk = run(trunk_length_ / length * length, trunk_length_);
    }
    first = std::min(first, branch.length);
    const int64_t end = branch.begin + branch.length;
    of_trunk.begin = branch.begin;
    of_trunk.end = branch.begin + first;
    if (first > 0) add_segment(of_trunk);
    for (int64_t begin = branch.begin + first; begin < end; begin += length) {
      Segment segment = run(begin, std::min(begin + length, end));
      // What stands before a branch in the row may be another branch.
      if (begin == branch.begin && segment.selector < begin) segment.selector = trunk_length_ - 1;
      add_segment(segment);
    }
  }

  // A run of the row's tokens, before which those of the prefix stand.
  Segment run(int64_t begin, int64_t end) const {
    return placed_segment(row_, {-prefix_length_, begin, end}, options_.segment_length,
                          options_.selector_position);
  }
  void add_segment(const Segment& segment) { batch_.input.segments.segments.push_back(segment); }
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
  int64_t trunk_length_ = 0;
};

// Without branches the plain causal mask, which needs no memory, says the same.
bool needs_mask(const std::vector<Request>& requests, const RequestTree& tree) {
  return std::ranges::count_if(tree.requests, [&](size_t request) {
           return branch_of(requests[request], tree.trunk, 0).length > 0;
         }) > 1;
}

// Ids that the contexts of requests [begin, end) have in common after the prefix.
int64_t common_context(const std::vector<Request>& requests, size_t begin, size_t end) {
  const std::vector<int32_t>& first = requests[begin].context;
  int64_t common = std::ssize(first);
  for (size_t i = begin + 1; i < end; ++i) {
    const auto [differs, other] = std::ranges::mismatch(first, requests[i].context);
    common = std::min(common, static_cast<int64_t>(differs - first.begin()));
  }
  return common - requests[begin].shared_prefix;
}

RequestTree make_tree(const std::vector<Request>& requests, size_t begin, size_t end, int64_t trunk) {
  RequestTree tree{{}, trunk, trunk};
  for (size_t i = begin; i < end; ++i) {
    tree.requests.push_back(i);
    tree.length += branch_of(requests[i], trunk, 0).length;
  }
  return tree;
}

// Requests [begin, end) belong to one group and have the same shared prefix.
void add_trees(const std::vector<Request>& requests, size_t begin, size_t end, RoutingMode routing,
               SelectorPosition position, std::vector<RequestTree>& trees) {
  const bool has_windows = routing == RoutingMode::kSegments && position == SelectorPosition::kPreviousMean;
  const int64_t common = common_context(requests, begin, end);
  int64_t longest = 0;
  for (size_t i = begin; i < end; ++i) {
    longest = std::max(longest, std::ssize(requests[i].context) - requests[i].shared_prefix);
  }
  const bool is_worth_it = common >= kShortestTrunk && 2 * common >= longest && !has_windows;
  if (routing == RoutingMode::kSegments && is_worth_it) {
    trees.push_back(make_tree(requests, begin, end, common));
    return;
  }
  for (size_t first = begin, last = begin; first < end; first = last) {
    do {
      ++last;
    } while (last < end && !has_windows && requests[last].context == requests[first].context);
    trees.push_back(make_tree(requests, first, last, common_context(requests, first, last)));
  }
}

}  // namespace

std::vector<RequestTree> build_request_trees(const std::vector<Request>& requests, RoutingMode routing,
                                             SelectorPosition position) {
  std::vector<RequestTree> trees;
  for (size_t begin = 0, end = 0; begin < requests.size(); begin = end) {
    for (; end < requests.size() && requests[end].group == requests[begin].group &&
           requests[end].shared_prefix == requests[begin].shared_prefix;
         ++end) {
      SMOE_ASSERT(requests[end].shared_prefix >= 0 &&
                  std::ssize(requests[end].context) > requests[end].shared_prefix &&
                  !requests[end].continuation.empty());
    }
    add_trees(requests, begin, end, routing, position, trees);
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
