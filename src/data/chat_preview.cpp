#include "smoe/data/chat_preview.h"

#include <algorithm>

#include "smoe/core/error.h"
#include "smoe/core/table.h"

namespace smoe {
namespace {

constexpr const char* kTrainedColor = "\033[32m";
constexpr const char* kSelectorColor = "\033[7m";
constexpr const char* kPromptColor = "\033[2m";
constexpr const char* kReset = "\033[0m";
constexpr const char* kIndent = "      ";

// Some vocabularies hold line breaks as they are.
std::string visible(const std::string& token) {
  std::string text;
  for (const char c : token) {
    if (c == '\n') {
      text += "\\n";
    } else if (c == '\t') {
      text += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      text += c;
    }
  }
  return text;
}

// Words on lines of a limited width; colours take no room.
class Lines {
 public:
  explicit Lines(int64_t width) : width_(width) {}

  void add(const std::string& text, const std::string& before, const std::string& after) {
    const auto columns = static_cast<int64_t>(display_width(text));
    if (used_ > 0 && used_ + 1 + columns > width_) {
      text_ += "\n";
      used_ = 0;
    }
    text_ += (used_ == 0 ? kIndent : " ") + before + text + after;
    used_ += 1 + columns;
  }
  std::string finish() const { return text_ + "\n"; }

 private:
  int64_t width_;
  int64_t used_ = 0;
  std::string text_;
};

struct TokenMarks {
  bool trained = false;
  bool selector = false;
};

class RowPreview {
 public:
  RowPreview(const Batch& batch, int64_t row, const Tokenizer& tokenizer, const ChatPreviewOptions& options)
      : tokens_T_(batch.tokens_BT[row]),
        targets_T_(batch.targets_BT[row]),
        loss_mask_T_(batch.loss_mask_BT[row]),
        chat_(batch.chats[static_cast<size_t>(row)]),
        tokenizer_(tokenizer),
        options_(options) {
    for (const Segment& segment :
         batch_segments(batch, options.segment_length, options.selector_position).segments) {
      if (segment.row == row) segments_.push_back(segment);
    }
  }

  std::string text(int64_t row) const {
    const int64_t num_tokens = tokens_T_.size(0);
    const int64_t padding = num_tokens - (chat_.empty() ? 0 : chat_.back().end);
    std::string text = fmt::format(
        "row {}: {} tokens, {} dialogues, {} trained tokens, {} segments, {} tokens of padding\n", row,
        num_tokens, chat_.size(), loss_mask_T_.sum().item<int64_t>(), segments_.size(), padding);
    for (size_t i = 0; i < chat_.size(); ++i) {
      text += fmt::format("  dialogue {}, tokens {} to {}\n", i, chat_[i].begin, chat_[i].end - 1);
      for (const Segment& segment : segments_) {
        if (segment.begin >= chat_[i].begin && segment.begin < chat_[i].end) text += lines(segment, chat_[i]);
      }
    }
    return text;
  }

 private:
  std::string lines(const Segment& segment, const ChatSpan& dialogue) const {
    const int64_t end = std::min(segment.end, dialogue.end);
    std::string text = fmt::format("    segment, tokens {} to {}, routed by token {}\n", segment.begin,
                                   end - 1, segment.selector);
    Lines words(options_.width);
    for (int64_t t = segment.begin; t < end; ++t) {
      const bool trained = t > dialogue.begin && is_trained(t - 1);
      add_token(words, tokens_T_[t].item<int32_t>(),
                {trained, t > segment.selector - segment.selector_tokens && t <= segment.selector});
    }
    // The last token of a dialogue is only a target.
    if (end == dialogue.end) {
      words.add("=>", "", "");
      add_token(words, targets_T_[end - 1].item<int32_t>(), {is_trained(end - 1), false});
    }
    return text + words.finish();
  }

  void add_token(Lines& words, int32_t id, const TokenMarks& marks) const {
    std::string word = visible(tokenizer_.token(id));
    if (options_.show_ids) word += fmt::format("/{}", id);
    if (options_.color) {
      words.add(word,
                fmt::format("{}{}", marks.selector ? kSelectorColor : "",
                            marks.trained ? kTrainedColor : kPromptColor),
                kReset);
    } else {
      words.add(fmt::format("{}{}{}", marks.selector ? "^" : "", marks.trained ? "+" : "", word), "", "");
    }
  }

  bool is_trained(int64_t position) const { return loss_mask_T_[position].item<bool>(); }

  at::Tensor tokens_T_, targets_T_, loss_mask_T_;
  const ChatRow& chat_;
  std::vector<Segment> segments_;
  const Tokenizer& tokenizer_;
  const ChatPreviewOptions& options_;
};

}  // namespace

std::string chat_preview_legend(const ChatPreviewOptions& options) {
  const std::string rest = "after => stands the last token of a dialogue, which is only a target\n";
  if (!options.color) return "+token is trained, ^token chooses the experts of its segment; " + rest;
  return fmt::format("{}prompt{}, {}trained{}, {}chooses the experts of its segment{}; {}", kPromptColor,
                     kReset, kTrainedColor, kReset, kSelectorColor, kReset, rest);
}

std::string chat_preview(const Batch& batch, int64_t row, const Tokenizer& tokenizer,
                         const ChatPreviewOptions& options) {
  SMOE_ASSERT(!batch.chats.empty() && row >= 0 && row < batch.num_rows());
  return RowPreview(batch, row, tokenizer, options).text(row);
}

}  // namespace smoe
