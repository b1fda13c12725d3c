#include "smoe/data/store_row_source.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "smoe/core/error.h"
#include "smoe/routing/segment_runs.h"

namespace smoe {
namespace {

int64_t* row_of(const at::Tensor& tensor_BT, int64_t row) {
  return tensor_BT.data_ptr<int64_t>() + row * tensor_BT.size(1);
}

}  // namespace

StoreRowSource::StoreRowSource(const SourceConfig& source, const DataConfig& data,
                               const std::string& tokenizer_hash, int64_t vocab_size, RowPurpose purpose)
    : store_(source.path),
      row_tokens_(data.sequence_length),
      vocab_size_(vocab_size),
      sequences_(data.sequences) {
  check_store_fits(store_, tokenizer_hash, vocab_size);
  const int64_t pairs = std::max<int64_t>(store_.dataset.num_tokens() - 1, 0);
  const bool training = purpose == RowPurpose::kTraining;
  if (sequences_ == SequenceKind::kPacked) {
    const std::vector<Piece> pieces = cut_documents(store_.dataset.document_borders(), row_tokens_);
    plan_ = training ? pack_best_fit(pieces, row_tokens_) : pack_in_order(pieces, row_tokens_);
    num_rows_ = plan_.num_rows();
  } else {
    num_rows_ = training ? pairs / row_tokens_ : (pairs + row_tokens_ - 1) / row_tokens_;
  }
  SMOE_CHECK(
      DataError, num_rows_ > 0,
      "{}: source '{}' has {} tokens, less than one row (sequence_length {} + 1); use more text or a shorter "
      "sequence_length",
      source.path, source.name, store_.dataset.num_tokens(), row_tokens_);
}

std::string StoreRowSource::identity() const {
  return fmt::format("bin {} idx {} tokenizer {}", store_.info.bin_sha256, store_.info.idx_sha256,
                     store_.info.tokenizer_hash);
}

void StoreRowSource::fill(int64_t index, Batch& batch, int64_t row_of_batch) const {
  SMOE_ASSERT(index >= 0 && index < num_rows_);
  if (sequences_ == SequenceKind::kPacked) {
    fill_packed(index, batch, row_of_batch);
  } else {
    fill_stream(index, batch, row_of_batch);
  }
}

void StoreRowSource::fill_stream(int64_t index, Batch& batch, int64_t row_of_batch) const {
  const int64_t begin = index * row_tokens_;
  const Piece piece{begin, std::min(row_tokens_, store_.dataset.num_tokens() - 1 - begin)};
  read_pairs(piece, row_of(batch.tokens_BT, row_of_batch), row_of(batch.targets_BT, row_of_batch));
  std::fill_n(batch.loss_mask_BT.data_ptr<bool>() + row_of_batch * row_tokens_, piece.length, true);
}

void StoreRowSource::fill_packed(int64_t index, Batch& batch, int64_t row_of_batch) const {
  int64_t* tokens = row_of(batch.tokens_BT, row_of_batch);
  int64_t* targets = row_of(batch.targets_BT, row_of_batch);
  int64_t* documents = row_of(batch.documents_BT, row_of_batch);
  int64_t* positions = row_of(batch.positions_BT, row_of_batch);
  bool* loss_mask = batch.loss_mask_BT.data_ptr<bool>() + row_of_batch * row_tokens_;
  int64_t at = 0;
  int64_t document = 0;
  for (const Piece& piece : plan_.row(index)) {
    read_pairs(piece, tokens + at, targets + at);
    std::fill_n(loss_mask + at, piece.length, true);
    std::fill_n(documents + at, piece.length, document++);
    std::iota(positions + at, positions + at + piece.length, int64_t{0});
    at += piece.length;
  }
  // Padding is a document of its own: it attends to itself, so that no row of the attention is empty.
  std::fill_n(documents + at, row_tokens_ - at, kPaddingDocument);
  std::iota(positions + at, positions + row_tokens_, int64_t{0});
}

void StoreRowSource::read_pairs(const Piece& piece, int64_t* tokens, int64_t* targets) const {
  store_.dataset.read(piece.begin, piece.length, tokens);
  store_.dataset.read(piece.begin + 1, piece.length, targets);
  const auto check = [&](int64_t id, int64_t at) {
    SMOE_CHECK(
        DataError, id >= 0 && id < vocab_size_,
        "{}: token {} is id {}, outside the vocabulary [0, {}) of the model; check the store with smoe-data "
        "inspect",
        with_suffix(store_.dataset.prefix(), ".bin").string(), at, id, vocab_size_);
  };
  check(tokens[0], piece.begin);
  for (int64_t i = 0; i < piece.length; ++i) {
    check(targets[i], piece.begin + 1 + i);
  }
}

}  // namespace smoe
