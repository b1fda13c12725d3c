#include "smoe/train/shard_layout.h"

#include <gtest/gtest.h>

#include <set>

namespace smoe {
namespace {

const std::vector<ShardItem> kItems = {{1000, 0}, {7, 0}, {33, 1}, {5000, 0}, {1, 0}, {64, 1}, {250, 0}};

TEST(ShardLayout, CoversEveryElementOnceOverAllShards) {
  for (const int64_t shards : {1, 2, 3, 8}) {
    const ShardLayout layout(kItems, 1200, shards);
    std::vector<std::vector<int>> seen;
    for (const ShardItem& item : kItems) seen.emplace_back(item.num_elements, 0);
    for (size_t bucket = 0; bucket < layout.buckets().size(); ++bucket) {
      for (int64_t shard = 0; shard < shards; ++shard) {
        int64_t end = 0;
        for (const ShardPiece& piece : layout.shard_pieces(bucket, shard)) {
          EXPECT_GE(piece.offset, end);
          end = piece.offset + piece.end - piece.begin;
          EXPECT_LE(end, layout.shard_elements(bucket));
          for (int64_t i = piece.begin; i < piece.end; ++i) ++seen[piece.item][static_cast<size_t>(i)];
        }
      }
    }
    for (const std::vector<int>& counts : seen)
      EXPECT_EQ(std::set<int>(counts.begin(), counts.end()), std::set<int>{1});
  }
}

TEST(ShardLayout, FillsBucketsFromTheLastItemAndNeverMixesTypes) {
  const ShardLayout layout(kItems, 1200, 2);
  EXPECT_EQ(layout.buckets().front().pieces.front().item, 6U);
  for (const ShardBucket& bucket : layout.buckets()) {
    EXPECT_EQ(bucket.num_elements % 64, 0);
    for (const ShardPiece& piece : bucket.pieces) EXPECT_EQ(kItems[piece.item].type, bucket.type);
  }
}

TEST(ShardLayout, GivesAnItemLargerThanABucketOneOfItsOwn) {
  const ShardLayout layout({{10, 0}, {5000, 0}, {10, 0}}, 100, 1);
  ASSERT_EQ(layout.buckets().size(), 3U);
  EXPECT_EQ(layout.buckets()[1].pieces.size(), 1U);
}

}  // namespace
}  // namespace smoe
