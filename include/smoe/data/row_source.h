// One token store cut into rows of T tokens: what training and validation data are made of.
//
// Shape legend: B rows, T tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "smoe/data/batch.h"
#include "smoe/data/data_config.h"
#include "smoe/data/packing.h"
#include "smoe/data/token_store.h"

namespace smoe {

enum class RowPurpose {
  kTraining,    // only full stream rows; best-fit packing
  kValidation,  // file order; the last row may be partly padding
};

class RowSource {
 public:
  // Throws DataError if the store cannot be opened, does not fit the tokenizer or the vocabulary, or holds
  // less than one row.
  RowSource(const SourceConfig& source, const DataConfig& data, const std::string& tokenizer_hash,
            int64_t vocab_size, RowPurpose purpose);

  int64_t num_rows() const { return num_rows_; }
  const TokenStore& store() const { return store_; }

  // Fills row `row_of_batch` of a batch from make_batch with row `index` of the source. Throws DataError for
  // a token id outside the vocabulary. Thread-safe.
  void fill(int64_t index, Batch& batch, int64_t row_of_batch) const;

 private:
  void fill_stream(int64_t index, Batch& batch, int64_t row_of_batch) const;
  void fill_packed(int64_t index, Batch& batch, int64_t row_of_batch) const;
  void read_pairs(const Piece& piece, int64_t* tokens, int64_t* targets) const;

  TokenStore store_;
  int64_t row_tokens_;
  int64_t vocab_size_;
  SequenceKind sequences_;
  int64_t num_rows_ = 0;
  PackingPlan plan_;  // of packed rows
};

// A batch of padding: tokens and targets 0, masked. Packed batches also get documents and positions.
Batch make_batch(int64_t num_rows, int64_t num_tokens, SequenceKind sequences);

}  // namespace smoe
