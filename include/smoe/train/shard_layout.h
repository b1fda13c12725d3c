// Where trained parameters lie in flat buckets, and which part of each bucket belongs to which process. No
// tensors: the memory of a plan is counted with it as well.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace smoe {

struct ShardItem {
  int64_t num_elements = 0;
  int type = 0;  // items of different types never share a bucket
};

// The elements [begin, end) of an item.
struct ShardPiece {
  size_t item = 0;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t offset = 0;  // of the first one, in the bucket, or in the shard
};

struct ShardBucket {
  int64_t num_elements = 0;        // padding included: a multiple of the number of shards
  int type = 0;                    // of its items
  std::vector<ShardPiece> pieces;  // whole items, in the order in which they lie
};

class ShardLayout {
 public:
  // Fills buckets of about `bucket_elements` from the last item to the first, the order in which a backward
  // pass gives gradients. An item is never split over buckets; a larger one has a bucket for itself.
  ShardLayout(const std::vector<ShardItem>& items, int64_t bucket_elements, int64_t num_shards);

  const std::vector<ShardBucket>& buckets() const { return buckets_; }
  int64_t num_shards() const { return num_shards_; }
  // Elements of one shard of a bucket.
  int64_t shard_elements(size_t bucket) const { return buckets_[bucket].num_elements / num_shards_; }
  // The parts of items in one shard of a bucket; offsets count within the shard.
  std::vector<ShardPiece> shard_pieces(size_t bucket, int64_t shard) const;

 private:
  std::vector<ShardBucket> buckets_;
  int64_t num_shards_ = 1;
};

}  // namespace smoe
