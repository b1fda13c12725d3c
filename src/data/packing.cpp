#include "smoe/data/packing.h"

#include <algorithm>
#include <set>

#include "smoe/core/error.h"

namespace smoe {
namespace {

// Indices of the pieces from long to short, equal lengths in file order: a counting sort, as lengths are at
// most T.
std::vector<int64_t> longest_first(const std::vector<Piece>& pieces, int64_t row_tokens) {
  std::vector<int64_t> next(row_tokens + 2, 0);
  for (const Piece& piece : pieces) {
    ++next[row_tokens - piece.length + 1];
  }
  for (int64_t i = 1; i <= row_tokens + 1; ++i) {
    next[i] += next[i - 1];
  }
  std::vector<int64_t> order(pieces.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    order[next[row_tokens - pieces[i].length]++] = static_cast<int64_t>(i);
  }
  return order;
}

// Rows with room left, found by how much they have.
class OpenRows {
 public:
  explicit OpenRows(int64_t row_tokens) : rows_(row_tokens + 1) {}

  void add(int64_t row, int64_t room) {
    if (room > 0) {
      rows_[room].push_back(row);
      rooms_.insert(room);
    }
  }

  // Removes the row with the least room of at least `length`, and says how much it has; -1: there is none.
  int64_t take(int64_t length, int64_t& room) {
    const auto found = rooms_.lower_bound(length);
    if (found == rooms_.end()) {
      return -1;
    }
    room = *found;
    const int64_t row = rows_[room].back();
    rows_[room].pop_back();
    if (rows_[room].empty()) {
      rooms_.erase(found);
    }
    return row;
  }

 private:
  std::vector<std::vector<int64_t>> rows_;  // by room
  std::set<int64_t> rooms_;                 // those with rows
};

}  // namespace

PackingPlan::PackingPlan(const std::vector<Piece>& pieces, const std::vector<int64_t>& row_of_piece,
                         int64_t num_rows)
    : pieces_(pieces.size()), row_borders_(num_rows + 1, 0) {
  SMOE_ASSERT(pieces.size() == row_of_piece.size());
  for (const int64_t row : row_of_piece) {
    ++row_borders_[row + 1];
  }
  for (int64_t row = 0; row < num_rows; ++row) {
    row_borders_[row + 1] += row_borders_[row];
  }
  std::vector<int64_t> next(row_borders_.begin(), row_borders_.end());
  for (size_t i = 0; i < pieces.size(); ++i) {
    pieces_[next[row_of_piece[i]]++] = pieces[i];
  }
}

std::vector<Piece> cut_documents(std::span<const int64_t> document_borders, int64_t row_tokens) {
  std::vector<Piece> pieces;
  for (size_t d = 0; d + 1 < document_borders.size(); ++d) {
    const int64_t last = document_borders[d + 1] - 1;  // only a target
    for (int64_t begin = document_borders[d]; begin < last; begin += row_tokens) {
      pieces.push_back({begin, std::min(row_tokens, last - begin)});
    }
  }
  return pieces;
}

PackingPlan pack_best_fit(const std::vector<Piece>& pieces, int64_t row_tokens) {
  std::vector<int64_t> row_of_piece(pieces.size());
  OpenRows open(row_tokens);
  int64_t num_rows = 0;
  for (const int64_t index : longest_first(pieces, row_tokens)) {
    const int64_t length = pieces[index].length;
    int64_t room = row_tokens;
    int64_t row = open.take(length, room);
    if (row < 0) {
      row = num_rows++;
    }
    open.add(row, room - length);
    row_of_piece[index] = row;
  }
  return {pieces, row_of_piece, num_rows};
}

PackingPlan pack_in_order(const std::vector<Piece>& pieces, int64_t row_tokens) {
  std::vector<int64_t> row_of_piece(pieces.size());
  int64_t room = 0;
  int64_t num_rows = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].length > room) {
      ++num_rows;
      room = row_tokens;
    }
    room -= pieces[i].length;
    row_of_piece[i] = num_rows - 1;
  }
  return {pieces, row_of_piece, num_rows};
}

}  // namespace smoe
