// Documents packed into rows so that no row mixes their losses and little of a row is padding.
//
// A document of n tokens gives n - 1 (input, target) pairs; documents of more than T pairs are cut into
// pieces of T, each starting at the last target of the one before, so that every token but the first of a
// document is a target exactly once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace smoe {

// `length` inputs from token `begin` of the source; their targets are one token further.
struct Piece {
  int64_t begin = 0;
  int64_t length = 0;

  friend bool operator==(const Piece&, const Piece&) = default;
};

class PackingPlan {
 public:
  PackingPlan() = default;
  // `row_of_piece[i]` is the row of `pieces[i]`; pieces of a row keep their order.
  PackingPlan(const std::vector<Piece>& pieces, const std::vector<int64_t>& row_of_piece, int64_t num_rows);

  int64_t num_rows() const { return static_cast<int64_t>(row_borders_.size()) - 1; }
  std::span<const Piece> row(int64_t index) const {
    return std::span(pieces_).subspan(row_borders_[index], row_borders_[index + 1] - row_borders_[index]);
  }

 private:
  std::vector<Piece> pieces_;
  std::vector<int64_t> row_borders_ = {0};
};

// Pieces of at most `row_tokens` inputs, in file order. `document_borders` [documents + 1] as in
// IndexedDataset; documents of one token have no target and give no piece.
std::vector<Piece> cut_documents(std::span<const int64_t> document_borders, int64_t row_tokens);

// Best-fit decreasing: the longest piece first, each into the fullest row that still holds it. Deterministic;
// O(n log T).
PackingPlan pack_best_fit(const std::vector<Piece>& pieces, int64_t row_tokens);

// File order kept: a new row where the next piece does not fit. For validation, where any first rows should
// be a fair sample.
PackingPlan pack_in_order(const std::vector<Piece>& pieces, int64_t row_tokens);

}  // namespace smoe
