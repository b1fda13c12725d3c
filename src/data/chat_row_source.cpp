#include "smoe/data/chat_row_source.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "smoe/core/available_cores.h"
#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/core/log.h"
#include "smoe/core/random.h"
#include "smoe/data/ordered_pipeline.h"
#include "smoe/routing/segment_runs.h"

namespace smoe {
namespace {

// Keeps the shuffle of the windows apart from the order of the rows.
constexpr uint64_t kWindowStream = 0x77696e646f77;

struct RenderedDialogue {
  ChatExample example;
  std::string place;
};

// Each window packed by itself, rows of earlier windows first.
PackingPlan pack_windows(const std::vector<Piece>& pieces, int64_t row_tokens, int64_t window,
                         uint64_t seed) {
  const auto size = static_cast<int64_t>(pieces.size());
  const Permutation order(static_cast<uint64_t>(size), mix_seeds(seed, kWindowStream));
  std::vector<Piece> shuffled;
  std::vector<int64_t> row_of_piece;
  int64_t num_rows = 0;
  for (int64_t begin = 0; begin < size; begin += window) {
    std::vector<Piece> part;
    for (int64_t i = begin; i < std::min(begin + window, size); ++i) {
      part.push_back(pieces[static_cast<size_t>(order(static_cast<uint64_t>(i)))]);
    }
    const PackingPlan plan = pack_best_fit(part, row_tokens);
    for (int64_t row = 0; row < plan.num_rows(); ++row) {
      for (const Piece& piece : plan.row(row)) {
        shuffled.push_back(piece);
        row_of_piece.push_back(num_rows + row);
      }
    }
    num_rows += plan.num_rows();
  }
  return {shuffled, row_of_piece, num_rows};
}

// The responses of an example whose inputs start at `at` in a row. The last token of an example is no input.
ChatSpan span_of(const ChatExample& example, int64_t at) {
  ChatSpan span{at, at + example.num_pairs(), {}};
  for (const ResponseSpan& response : example.responses) {
    span.responses.push_back({at + response.begin, std::min(at + response.end, span.end)});
  }
  return span;
}

}  // namespace

ChatRowSource::ChatRowSource(const SourceConfig& source, const DataConfig& data, const SftConfig& sft,
                             const ChatRenderer& renderer, int64_t vocab_size, RowPurpose purpose)
    : row_tokens_(data.sequence_length) {
  SMOE_CHECK(
      DataError, renderer.tokenizer().vocab_size() <= vocab_size,
      "{}: the tokenizer has {} entries, but model.vocab_size is {}; raise it or use the model's tokenizer",
      renderer.tokenizer().path().string(), renderer.tokenizer().vocab_size(), vocab_size);
  SMOE_CHECK(ConfigError, data.sequences == SequenceKind::kPacked,
             "data.sequences is {}; dialogues are packed and kept apart: set it to packed",
             enum_to_name(data.sequences));
  read(source, sft, renderer);
  SMOE_CHECK(DataError, !examples_.empty(),
             "{}: source '{}': none of its {} dialogues fits into sequence_length {}; raise it, or set "
             "sft.too_long: truncate_left",
             source.path, source.name, counts_.dialogues, row_tokens_);
  std::vector<Piece> pieces;
  for (size_t i = 0; i < examples_.size(); ++i) {
    pieces.push_back({static_cast<int64_t>(i), examples_[i].num_pairs()});
  }
  plan_ = purpose == RowPurpose::kTraining
              ? pack_windows(pieces, row_tokens_, sft.packing_window, static_cast<uint64_t>(data.seed))
              : pack_in_order(pieces, row_tokens_);
  identity_ =
      fmt::format("chat {} tokenizer {} template {} too_long {} window {}", sha256_of_file(source.path),
                  renderer.tokenizer().hash(), config_hash(renderer.chat_template()),
                  enum_to_name(sft.too_long), sft.packing_window);
  log_counts(source);
}

void ChatRowSource::read(const SourceConfig& source, const SftConfig& sft, const ChatRenderer& renderer) {
  DocumentReader reader({source.path});
  OrderedPipeline<DocumentRecord, RenderedDialogue>::run(
      available_cores(),
      [&]() -> std::optional<DocumentRecord> {
        DocumentRecord record;
        return reader.next(record) ? std::optional(std::move(record)) : std::nullopt;
      },
      [&](DocumentRecord&& record) -> RenderedDialogue {
        std::string place = fmt::format("{}:{}", *record.file, record.line);
        return {renderer.render(parse_conversation(record)), std::move(place)};
      },
      [&](RenderedDialogue&& dialogue) { add(std::move(dialogue.example), dialogue.place, sft.too_long); });
}

void ChatRowSource::add(ChatExample&& example, const std::string& place, TooLongPolicy policy) {
  ++counts_.dialogues;
  if (example.num_pairs() > row_tokens_) {
    SMOE_CHECK(DataError, policy != TooLongPolicy::kError,
               "{}: the dialogue has {} tokens, data.sequence_length is {} (and one more is read as the last "
               "target); raise it, shorten the dialogue, or set sft.too_long to drop or truncate_left",
               place, example.tokens.size(), row_tokens_);
    if (policy == TooLongPolicy::kDrop || !truncate_left(example, row_tokens_)) {
      ++counts_.dropped;
      return;
    }
    ++counts_.truncated;
  }
  counts_.tokens += example.num_pairs();
  counts_.targets += std::accumulate(example.is_target.begin(), example.is_target.end(), int64_t{0});
  counts_.answer_bytes +=
      std::accumulate(example.response_bytes.begin(), example.response_bytes.end(), int64_t{0});
  examples_.push_back(std::move(example));
}

void ChatRowSource::log_counts(const SourceConfig& source) const {
  const double share = static_cast<double>(counts_.tokens) / static_cast<double>(num_rows() * row_tokens_);
  spdlog::info("chat source {}: {} dialogues, {} tokens ({} trained) in {} rows, {:.1f}% full", source.name,
               counts_.dialogues - counts_.dropped, counts_.tokens, counts_.targets, num_rows(),
               100.0 * share);
  if (counts_.dropped + counts_.truncated > 0) {
    spdlog::warn(
        "chat source {}: of {} dialogues, {} were left out and {} lost their beginning, because they have "
        "more than {} tokens",
        source.name, counts_.dialogues, counts_.dropped, counts_.truncated, row_tokens_);
  }
}

double ChatRowSource::bytes_per_target() const {
  return static_cast<double>(counts_.answer_bytes) / static_cast<double>(counts_.targets);
}

void ChatRowSource::fill(int64_t index, Batch& batch, int64_t row_of_batch) const {
  SMOE_ASSERT(index >= 0 && index < num_rows());
  const int64_t offset = row_of_batch * row_tokens_;
  int64_t* tokens = batch.tokens_BT.data_ptr<int64_t>() + offset;
  int64_t* targets = batch.targets_BT.data_ptr<int64_t>() + offset;
  bool* loss_mask = batch.loss_mask_BT.data_ptr<bool>() + offset;
  int64_t* documents = batch.documents_BT.data_ptr<int64_t>() + offset;
  int64_t* positions = batch.positions_BT.data_ptr<int64_t>() + offset;
  batch.chats.resize(static_cast<size_t>(batch.num_rows()));
  ChatRow& row = batch.chats[static_cast<size_t>(row_of_batch)];
  int64_t at = 0;
  for (const Piece& piece : plan_.row(index)) {
    const ChatExample& example = examples_[static_cast<size_t>(piece.begin)];
    std::copy(example.tokens.begin(), example.tokens.end() - 1, tokens + at);
    std::copy(example.tokens.begin() + 1, example.tokens.end(), targets + at);
    std::copy(example.is_target.begin() + 1, example.is_target.end(), loss_mask + at);
    std::fill_n(documents + at, piece.length, static_cast<int64_t>(row.size()));
    std::iota(positions + at, positions + at + piece.length, int64_t{0});
    row.push_back(span_of(example, at));
    at += piece.length;
  }
  // Padding is a document of its own: it attends to itself, so that no row of the attention is empty.
  std::fill_n(documents + at, row_tokens_ - at, kPaddingDocument);
  std::iota(positions + at, positions + row_tokens_, int64_t{0});
}

}  // namespace smoe
