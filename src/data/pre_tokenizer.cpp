#include "pre_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "smoe/core/error.h"

namespace smoe {
namespace {

// The pattern of GPT-2 (Radford et al. 2019), which ByteLevel applies by itself.
constexpr std::string_view kGpt2Pattern =
    "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

SplitBehavior parse_behavior(const JsonCursor& cursor) {
  static constexpr std::pair<std::string_view, SplitBehavior> kNames[] = {
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous}};
  const std::string name = cursor.string();
  for (const auto& [known, behavior] : kNames) {
    if (name == known) {
      return behavior;
    }
  }
  cursor.fail(
      fmt::format("the behavior '{}' is not supported; supported are: Removed, Isolated, "
                  "MergedWithPrevious, MergedWithNext, Contiguous",
                  name));
}

// A regular expression that matches `text` literally.
std::string quote_pattern(std::string_view text) {
  std::string quoted;
  for (const char character : text) {
    const auto byte = static_cast<unsigned char>(character);
    const bool plain = byte >= 0x80 || std::isalnum(byte) != 0;
    quoted += plain ? std::string(1, character) : fmt::format("\\x{{{:x}}}", byte);
  }
  return quoted;
}

// A stretch of the text and whether the pattern matched it.
struct Stretch {
  TextRange range;
  bool is_match;
};

void alternate(std::string_view text, const std::vector<TextRange>& matches, bool invert,
               std::vector<Stretch>& stretches) {
  stretches.clear();
  size_t done = 0;
  for (const TextRange& match : matches) {
    if (match.begin > done) {
      stretches.push_back({{done, match.begin}, invert});
    }
    stretches.push_back({match, !invert});
    done = match.end;
  }
  if (done < text.size()) {
    stretches.push_back({{done, text.size()}, invert});
  }
}

bool joins_previous(SplitBehavior behavior, bool previous_is_match, bool is_match) {
  switch (behavior) {
    case SplitBehavior::kContiguous:
      return previous_is_match == is_match;
    case SplitBehavior::kMergedWithPrevious:
      return is_match && !previous_is_match;
    case SplitBehavior::kMergedWithNext:
      return previous_is_match && !is_match;
    case SplitBehavior::kRemoved:
    case SplitBehavior::kIsolated:
      break;
  }
  return false;
}

void append_words(std::string_view text, const std::vector<Stretch>& stretches, SplitBehavior behavior,
                  std::vector<std::string_view>& words) {
  const auto append = [&](size_t begin, size_t end) {
    if (end > begin) {
      words.push_back(text.substr(begin, end - begin));
    }
  };
  size_t begin = 0;
  size_t end = 0;
  for (size_t index = 0; index < stretches.size(); ++index) {
    const auto& [range, is_match] = stretches[index];
    if (index == 0 || !joins_previous(behavior, stretches[index - 1].is_match, is_match)) {
      append(begin, end);
      begin = range.begin;
    }
    end = range.end;
    if (behavior == SplitBehavior::kRemoved && is_match) {
      begin = end;
    }
  }
  append(begin, end);
}

}  // namespace

PreTokenizer::PreTokenizer(const JsonCursor& config) {
  add_steps(config);
  if (!has_byte_level_) {
    config.fail(
        "no ByteLevel pre-tokenizer found; only byte-level BPE is supported. For models that come with a "
        "SentencePiece file, use that tokenizer.model");
  }
}

void PreTokenizer::add_steps(const JsonCursor& config) {
  const std::string type = config.at("type").string();
  if (has_byte_level_) {
    config.fail(fmt::format("'{}' after ByteLevel is not supported", type));
  }
  if (type == "Sequence") {
    config.allow_keys({"type", "pretokenizers"});
    for (const JsonCursor& item : config.at("pretokenizers").items()) {
      add_steps(item);
    }
  } else if (type == "Split") {
    add_split(config);
  } else if (type == "Digits") {
    config.allow_keys({"type", "individual_digits"});
    const bool individual = config.boolean_or("individual_digits", false);
    add_pattern(config, "\\p{N}", individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous, false);
  } else if (type == "ByteLevel") {
    add_byte_level(config);
  } else {
    config.fail(fmt::format(
        "the pre-tokenizer '{}' is not supported; supported are: Sequence, Split, Digits, ByteLevel", type));
  }
}

void PreTokenizer::add_split(const JsonCursor& config) {
  config.allow_keys({"type", "pattern", "behavior", "invert"});
  const JsonCursor pattern = config.at("pattern");
  pattern.allow_keys({"Regex", "String"});
  const auto regex = pattern.find("Regex");
  const std::string text = regex ? regex->string() : quote_pattern(pattern.at("String").string());
  add_pattern(pattern, text, parse_behavior(config.at("behavior")), config.boolean_or("invert", false));
}

void PreTokenizer::add_byte_level(const JsonCursor& config) {
  config.allow_keys({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  has_byte_level_ = true;
  adds_prefix_space_ = config.boolean_or("add_prefix_space", true);
  if (adds_prefix_space_ && !steps_.empty()) {
    config.fail(
        "add_prefix_space after other pre-tokenizers would put a space before every word; this is not "
        "supported");
  }
  if (config.boolean_or("use_regex", true)) {
    add_pattern(config, kGpt2Pattern, SplitBehavior::kIsolated, false);
  }
}

void PreTokenizer::add_pattern(const JsonCursor& config, std::string_view pattern, SplitBehavior behavior,
                               bool invert) {
  try {
    steps_.push_back({PatternMatcher(pattern), behavior, invert});
  } catch (const DataError& error) {
    config.fail(error.what());
  }
}

std::vector<std::string_view> PreTokenizer::split(std::string_view text) const {
  std::vector<std::string_view> words = {text};
  std::vector<std::string_view> finer;
  std::vector<TextRange> matches;
  std::vector<Stretch> stretches;
  for (const Step& step : steps_) {
    finer.clear();
    for (const std::string_view word : words) {
      step.matcher.find_all(word, matches);
      alternate(word, matches, step.invert, stretches);
      append_words(word, stretches, step.behavior, finer);
    }
    std::swap(words, finer);
  }
  return words;
}

}  // namespace smoe
