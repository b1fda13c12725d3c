// The endless sequence of training rows: a mixture of sources (token stores, or dialogues for fine-tuning) in
// a global order that is a function of (config, seed, position) only. Micro-batch size and number of
// processes only decide who reads which rows.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "smoe/data/batch.h"
#include "smoe/data/data_config.h"
#include "smoe/data/sft_config.h"
#include "smoe/data/tokenizer.h"

namespace smoe {

class TrainingData {
 public:
  // Opens the token stores. Throws DataError if one is missing, damaged, or was made with another tokenizer
  // than `tokenizer_hash`, or holds less than one row.
  TrainingData(const DataConfig& config, const std::string& tokenizer_hash, int64_t vocab_size);
  // Reads the dialogues of fine-tuning: the sources of `config` are files of messages. Throws ConfigError for
  // a template that is missing or does not fit the tokenizer, and DataError as ChatRowSource does.
  TrainingData(const DataConfig& config, const SftConfig& sft, const Tokenizer& tokenizer,
               int64_t vocab_size);
  ~TrainingData();

  // Rows [position, position + count) of the global order; position counts samples from the start of
  // training, across epochs. Thread-safe.
  Batch rows(int64_t position, int64_t count) const;

  // Identifies the data and its order: changes when a source, a weight, the sequence settings or the seed
  // changes. Stored in checkpoints; a mismatch on resume is refused.
  std::string fingerprint() const;

  // Rows of one pass over each source, in the order of the config.
  std::vector<int64_t> rows_per_epoch() const;
  // Tokens in each source.
  std::vector<int64_t> source_tokens() const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

// Validation rows of one source, in file order, each token scored at most once. The last row is padded and
// masked.
class ValidationData {
 public:
  ValidationData(const SourceConfig& source, const DataConfig& config, const std::string& tokenizer_hash,
                 int64_t vocab_size);
  // The same for the dialogues of a file of messages.
  ValidationData(const SourceConfig& source, const DataConfig& config, const SftConfig& sft,
                 const Tokenizer& tokenizer, int64_t vocab_size);
  ~ValidationData();
  int64_t num_rows() const;
  Batch rows(int64_t begin, int64_t count) const;
  // UTF-8 bytes of text per target token of this source (bits per byte = loss / ln 2 / bytes per token); 0
  // where it is not known.
  double bytes_per_token() const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace smoe
