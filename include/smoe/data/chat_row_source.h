// The dialogues of one file of messages, packed into rows of T tokens: the data of fine-tuning.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "smoe/data/chat_renderer.h"
#include "smoe/data/packing.h"
#include "smoe/data/row_source.h"
#include "smoe/data/sft_config.h"

namespace smoe {

// What became of the dialogues of a file.
struct ChatCounts {
  int64_t dialogues = 0;  // in the file
  int64_t dropped = 0;    // too long, left out
  int64_t truncated = 0;  // too long, beginning cut
  int64_t tokens = 0;     // of the rows, padding left out
  int64_t targets = 0;    // trained tokens
  int64_t answer_bytes = 0;
};

class ChatRowSource : public RowSource {
 public:
  // Reads and renders the whole file (it stays in memory as ids). A row holds whole dialogues; each attends
  // to itself only, with positions from 0. Training: the dialogues are shuffled by the seed and packed by
  // best-fit decreasing, packing_window of them at a time. Validation: file order. Logs the counts. Throws
  // DataError: a line that is no conversation, a dialogue that is too long under the policy `error`, no
  // dialogue left, a tokenizer larger than the vocabulary.
  ChatRowSource(const SourceConfig& source, const DataConfig& data, const SftConfig& sft,
                const ChatRenderer& renderer, int64_t vocab_size, RowPurpose purpose);

  int64_t num_rows() const override { return plan_.num_rows(); }
  int64_t num_tokens() const override { return counts_.tokens; }
  double bytes_per_target() const override;
  std::string identity() const override { return identity_; }
  void fill(int64_t index, Batch& batch, int64_t row_of_batch) const override;

  const ChatCounts& counts() const { return counts_; }

 private:
  void read(const SourceConfig& source, const SftConfig& sft, const ChatRenderer& renderer);
  void add(ChatExample&& example, const std::string& place, TooLongPolicy policy);
  void log_counts(const SourceConfig& source) const;

  int64_t row_tokens_;
  std::vector<ChatExample> examples_;
  PackingPlan plan_;  // a piece's `begin` is the index of its example
  ChatCounts counts_;
  std::string identity_;
};

}  // namespace smoe
