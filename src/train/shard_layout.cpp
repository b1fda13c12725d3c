#include "smoe/train/shard_layout.h"

#include <algorithm>
#include <map>

#include "smoe/core/error.h"

namespace smoe {
namespace {

// Items and shards begin at multiples of this: 128 bytes in float32, which vector loads like.
constexpr int64_t kAlignment = 32;

int64_t rounded_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

}  // namespace

ShardLayout::ShardLayout(const std::vector<ShardItem>& items, int64_t bucket_elements, int64_t num_shards)
    : num_shards_(num_shards) {
  SMOE_ASSERT(num_shards >= 1 && bucket_elements >= 1);
  std::map<int, ShardBucket> open;
  const auto close = [&](ShardBucket& bucket) {
    bucket.num_elements = rounded_up(bucket.num_elements, kAlignment * num_shards);
    buckets_.push_back(std::move(bucket));
    bucket = {};
  };
  for (size_t left = items.size(); left > 0; --left) {
    const ShardItem& item = items[left - 1];
    ShardBucket& bucket = open[item.type];
    if (!bucket.pieces.empty() && bucket.num_elements + item.num_elements > bucket_elements) close(bucket);
    bucket.type = item.type;
    bucket.pieces.push_back({left - 1, 0, item.num_elements, bucket.num_elements});
    bucket.num_elements = rounded_up(bucket.num_elements + item.num_elements, kAlignment);
  }
  for (auto& [type, bucket] : open) {
    if (!bucket.pieces.empty()) close(bucket);
  }
}

std::vector<ShardPiece> ShardLayout::shard_pieces(size_t bucket, int64_t shard) const {
  const int64_t size = shard_elements(bucket);
  const int64_t low = shard * size, high = low + size;
  std::vector<ShardPiece> pieces;
  for (const ShardPiece& whole : buckets_[bucket].pieces) {
    const int64_t begin = std::max(low - whole.offset, whole.begin);
    const int64_t end = std::min(high - whole.offset, whole.end);
    if (begin < end) pieces.push_back({whole.item, begin, end, whole.offset + begin - low});
  }
  return pieces;
}

}  // namespace smoe
