// Rows of one source of a mixture: what training and validation data are made of, whatever the rows come
// from.
//
// Shape legend: B rows, T tokens.
#pragma once

#include <cstdint>
#include <string>

#include "smoe/data/batch.h"
#include "smoe/data/data_config.h"

namespace smoe {

enum class RowPurpose {
  kTraining,    // as many tokens a row as possible
  kValidation,  // file order; the last row may be partly padding
};

class RowSource {
 public:
  virtual ~RowSource() = default;

  // Rows of one pass; at least 1.
  virtual int64_t num_rows() const = 0;
  // Tokens of one pass.
  virtual int64_t num_tokens() const = 0;
  // UTF-8 bytes of text a target token stands for; 0 where it is not known.
  virtual double bytes_per_target() const = 0;
  // Names the content and how it becomes rows: another text for other rows.
  virtual std::string identity() const = 0;
  // Fills row `row_of_batch` of a batch from make_batch with row `index` of the source. Throws DataError for
  // a token id outside the vocabulary. Safe to call from several threads for batches of their own.
  virtual void fill(int64_t index, Batch& batch, int64_t row_of_batch) const = 0;
};

// A batch of padding: tokens and targets 0, masked. Packed batches also get documents and positions.
Batch make_batch(int64_t num_rows, int64_t num_tokens, SequenceKind sequences);

}  // namespace smoe
