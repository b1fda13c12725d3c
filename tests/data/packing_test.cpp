#include "smoe/data/packing.h"

#include <algorithm>

#include "data_test_support.h"
#include "smoe/core/random.h"

namespace smoe {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<int64_t> random_borders(uint64_t seed, int64_t documents, uint64_t most_tokens) {
  SplitMix64 random(seed);
  std::vector<int64_t> borders = {0};
  for (int64_t i = 0; i < documents; ++i) {
    borders.push_back(borders.back() + static_cast<int64_t>(random.below(most_tokens + 1)));
  }
  return borders;
}

std::vector<Piece> sorted_pieces(const PackingPlan& plan) {
  std::vector<Piece> pieces;
  for (int64_t row = 0; row < plan.num_rows(); ++row) {
    pieces.insert(pieces.end(), plan.row(row).begin(), plan.row(row).end());
  }
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
  return pieces;
}

int64_t row_length(const PackingPlan& plan, int64_t row) {
  int64_t length = 0;
  for (const Piece& piece : plan.row(row)) {
    length += piece.length;
  }
  return length;
}

// Best-fit decreasing as the textbook says it: look at every row.
std::vector<int64_t> slow_best_fit(std::vector<Piece> pieces, int64_t row_tokens) {
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const Piece& a, const Piece& b) { return a.length > b.length; });
  std::vector<int64_t> used;
  for (const Piece& piece : pieces) {
    int64_t best = -1;
    for (int64_t row = 0; row < static_cast<int64_t>(used.size()); ++row) {
      if (used[row] + piece.length <= row_tokens && (best < 0 || used[row] > used[best])) {
        best = row;
      }
    }
    if (best < 0) {
      best = static_cast<int64_t>(used.size());
      used.push_back(0);
    }
    used[best] += piece.length;
  }
  std::sort(used.begin(), used.end());
  return used;
}

TEST(CutDocuments, CutsLongDocumentsSoThatEveryTokenButTheFirstIsATargetOnce) {
  // Documents of 3, 1, 0, 9 and 5 tokens, rows of 4.
  EXPECT_THAT(cut_documents(std::vector<int64_t>{0, 3, 4, 4, 13, 18}, 4),
              ElementsAre(Piece{0, 2}, Piece{4, 4}, Piece{8, 4}, Piece{13, 4}));
  EXPECT_THAT(cut_documents(std::vector<int64_t>{0, 6}, 4), ElementsAre(Piece{0, 4}, Piece{4, 1}));
  EXPECT_THAT(cut_documents(std::vector<int64_t>{0, 1}, 4), IsEmpty());
}

TEST(Packing, PlacesEveryPieceOnceInRowsThatHoldThem) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const std::vector<Piece> pieces = cut_documents(random_borders(seed, 300, 70), 32);
    for (const PackingPlan& plan : {pack_best_fit(pieces, 32), pack_in_order(pieces, 32)}) {
      EXPECT_EQ(sorted_pieces(plan), pieces);
      for (int64_t row = 0; row < plan.num_rows(); ++row) {
        ASSERT_GE(row_length(plan, row), 1);
        ASSERT_LE(row_length(plan, row), 32);
      }
    }
  }
}

TEST(Packing, FillsRowsAsTheTextbookBestFitDoes) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const std::vector<Piece> pieces = cut_documents(random_borders(seed + 100, 200, 40), 32);
    const PackingPlan plan = pack_best_fit(pieces, 32);
    std::vector<int64_t> used;
    for (int64_t row = 0; row < plan.num_rows(); ++row) {
      used.push_back(row_length(plan, row));
    }
    std::sort(used.begin(), used.end());
    EXPECT_EQ(used, slow_best_fit(pieces, 32));
  }
}

TEST(Packing, WastesLittle) {
  const std::vector<Piece> pieces = cut_documents(random_borders(1, 20000, 3000), 1024);
  int64_t tokens = 0;
  for (const Piece& piece : pieces) {
    tokens += piece.length;
  }
  const PackingPlan plan = pack_best_fit(pieces, 1024);
  EXPECT_GT(double(tokens) / double(plan.num_rows() * 1024), 0.99);
}

TEST(PackInOrder, KeepsFileOrderAcrossRows) {
  const std::vector<Piece> pieces = cut_documents(random_borders(5, 100, 70), 32);
  const PackingPlan plan = pack_in_order(pieces, 32);
  int64_t last = -1;
  for (int64_t row = 0; row < plan.num_rows(); ++row) {
    for (const Piece& piece : plan.row(row)) {
      EXPECT_GT(piece.begin, last);
      last = piece.begin;
    }
  }
}

TEST(Packing, OfNothingHasNoRows) {
  EXPECT_EQ(pack_best_fit({}, 8).num_rows(), 0);
  EXPECT_EQ(pack_in_order({}, 8).num_rows(), 0);
}

}  // namespace
}  // namespace smoe
