#include "smoe/infer/text_stream.h"

#include <algorithm>

#include "smoe/core/error.h"

namespace smoe {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
// Bytes of a character that may be missing its end; a tokenizer may write one U+FFFD for each.
constexpr int kMaxIncomplete = 3;
// The window is cut to kKeptIds when it reaches kWindowIds.
constexpr size_t kWindowIds = 48;
constexpr size_t kKeptIds = 16;

// The length of `text` without replacement characters at its end that the next id might turn into a
// character.
size_t complete_length(std::string_view text) {
  for (int i = 0; i < kMaxIncomplete && text.ends_with(kReplacement); ++i) {
    text.remove_suffix(kReplacement.size());
  }
  return text.size();
}

// Ids before a text that decide how it begins: more than a character can span.
std::vector<int32_t> last_ids(const std::vector<int32_t>& ids) {
  return {ids.end() - std::min(std::ssize(ids), static_cast<std::ptrdiff_t>(kKeptIds)), ids.end()};
}

}  // namespace

IncrementalDecoder::IncrementalDecoder(const Tokenizer& tokenizer, const std::vector<int32_t>& context)
    : tokenizer_(tokenizer), window_(last_ids(context)) {
  if (!window_.empty()) given_out_ = complete_length(tokenizer_.decode(window_));
}

std::string IncrementalDecoder::push(int32_t id) {
  window_.push_back(id);
  const std::string text = tokenizer_.decode(window_);
  const size_t end = complete_length(text);
  if (end <= given_out_) return {};
  std::string fresh = text.substr(given_out_, end - given_out_);
  given_out_ = end;
  if (window_.size() >= kWindowIds && end == text.size()) shorten_window(text);
  return fresh;
}

void IncrementalDecoder::shorten_window(const std::string& text) {
  const std::vector<int32_t> kept = last_ids(window_);
  const std::string kept_text = tokenizer_.decode(kept);
  // The kept ids stand for the whole window only where they say the same text, and where that text is more
  // than the spaces that a tokenizer may drop at the beginning.
  if (kept_text.find_first_not_of(' ') == std::string::npos || !text.ends_with(kept_text)) return;
  window_ = kept;
  given_out_ = kept_text.size();
}

std::string IncrementalDecoder::finish() {
  const std::string text = tokenizer_.decode(window_);
  std::string rest = text.size() > given_out_ ? text.substr(given_out_) : std::string();
  given_out_ = text.size();
  return rest;
}

StopMatcher::StopMatcher(std::vector<std::string> stops, std::string ending)
    : stops_(std::move(stops)), ending_(std::move(ending)) {
  for (const std::string& stop : stops_) {
    SMOE_CHECK(ConfigError, !stop.empty(), "a stop string is empty; every text would end before it begins");
  }
}

std::string StopMatcher::push(std::string_view text) {
  if (match_) return {};
  pending_ += text;
  size_t first = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t found = pending_.find(stop);
    if (found < first) {
      first = found;
      match_ = stop;
    }
  }
  const size_t end = match_ ? first : pending_.size() - held_back();
  std::string safe = pending_.substr(0, end);
  pending_.erase(0, end);
  return safe;
}

size_t StopMatcher::held_back() const {
  size_t longest = 0;
  const auto hold = [&](std::string_view text, size_t most) {
    size_t length = std::min(most, pending_.size());
    while (length > longest && !pending_.ends_with(text.substr(0, length))) --length;
    longest = std::max(longest, length);
  };
  for (const std::string& stop : stops_) hold(stop, stop.size() - 1);
  hold(ending_, ending_.size());
  return longest;
}

std::string StopMatcher::finish(bool drops_ending) {
  std::string rest = match_ ? std::string() : pending_;
  pending_.clear();
  if (drops_ending && rest.ends_with(ending_)) rest.resize(rest.size() - ending_.size());
  return rest;
}

TextStream::TextStream(const Tokenizer& tokenizer, std::vector<std::string> stops,
                       const std::vector<int32_t>& context, std::string ending)
    : decoder_(tokenizer, context), stops_(std::move(stops), std::move(ending)) {}

std::string TextStream::push(int32_t id) { return stops_.push(decoder_.push(id)); }

std::string TextStream::finish(bool drops_ending) {
  std::string text = stops_.push(decoder_.finish());
  return text + stops_.finish(drops_ending);
}

}  // namespace smoe
