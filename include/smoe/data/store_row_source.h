// One token store cut into rows of T tokens.
#pragma once

#include <cstdint>
#include <string>

#include "smoe/data/packing.h"
#include "smoe/data/row_source.h"
#include "smoe/data/token_store.h"

namespace smoe {

class StoreRowSource : public RowSource {
 public:
  // Training takes only full stream rows and packs by best fit. Throws DataError if the store cannot be
  // opened, does not fit the tokenizer or the vocabulary, or holds less than one row.
  StoreRowSource(const SourceConfig& source, const DataConfig& data, const std::string& tokenizer_hash,
                 int64_t vocab_size, RowPurpose purpose);

  int64_t num_rows() const override { return num_rows_; }
  int64_t num_tokens() const override { return store_.dataset.num_tokens(); }
  double bytes_per_target() const override { return store_.info.bytes_per_token(); }
  std::string identity() const override;
  void fill(int64_t index, Batch& batch, int64_t row_of_batch) const override;

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

}  // namespace smoe
