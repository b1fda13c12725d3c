#include "smoe/data/tokenizer_training.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <unordered_map>

#include "document_sample.h"
#include "smoe/core/error.h"
#include "smoe/core/log.h"
#include "smoe/core/progress.h"
#include "utf8.h"

namespace smoe {
namespace {

// <unk>, <s>, </s> and the 256 bytes.
constexpr int64_t kFixedTokens = 259;
// The trainer's work on one sentence grows with its length; pieces never span much of one.
constexpr size_t kSentenceBytes = 2048;

// Gives the trainer the documents in stretches. A stretch ends after a line break where one is near, so that
// pieces such as "\n\n" can be learned; the trainer reserves U+0009 and refuses U+0000, so that a stretch
// ends there too. Both are encoded as bytes.
class SentenceStream final : public sentencepiece::SentenceIterator {
 public:
  explicit SentenceStream(const std::vector<std::string>& documents) : documents_(documents) { Next(); }

  bool done() const override { return done_; }
  const std::string& value() const override { return sentence_; }
  sentencepiece::util::Status status() const override { return {}; }
  void Next() override {
    do {
      while (document_ < documents_.size() && position_ >= documents_[document_].size()) {
        ++document_;
        position_ = 0;
      }
      done_ = document_ == documents_.size();
      if (!done_) {
        cut();
      }
    } while (!done_ && sentence_.empty());
  }

 private:
  void cut() {
    const std::string_view rest = std::string_view(documents_[document_]).substr(position_);
    size_t size = std::min(rest.size(), rest.find_first_of(std::string_view("\t\0", 2)));
    const bool at_reserved = size < rest.size();
    size_t skipped = at_reserved ? 1 : 0;
    if (size > kSentenceBytes) {
      skipped = 0;
      const size_t line_end = rest.rfind('\n', kSentenceBytes - 1);
      const size_t space = rest.rfind(' ', kSentenceBytes - 1);
      if (line_end != std::string_view::npos && line_end >= kSentenceBytes / 4) {
        size = line_end + 1;
      } else if (space != std::string_view::npos && space > 0) {
        size = space;  // the space begins the next stretch, as it begins the next word
      } else {
        size = kSentenceBytes;
        while ((static_cast<unsigned char>(rest[size]) & 0xC0) == 0x80) {
          --size;  // not inside a character
        }
      }
    }
    sentence_ = rest.substr(0, size);
    position_ += size + skipped;
  }

  const std::vector<std::string>& documents_;
  size_t document_ = 0;
  size_t position_ = 0;
  std::string sentence_;
  bool done_ = false;
};

void check_options(const TokenizerTrainingOptions& options) {
  const auto special_tokens = static_cast<int64_t>(options.special_tokens.size());
  SMOE_CHECK(
      ConfigError, options.vocab_size > kFixedTokens + special_tokens,
      "the vocabulary size is {}, but <unk>, <s>, </s>, 256 bytes and {} special tokens need more than {}",
      options.vocab_size, special_tokens, kFixedTokens + special_tokens);
  SMOE_CHECK(ConfigError, options.vocab_size <= (int64_t{1} << 20),
             "the vocabulary size is {}; at most {} is supported", options.vocab_size, int64_t{1} << 20);
  SMOE_CHECK(ConfigError, options.character_coverage >= 0.9 && options.character_coverage <= 1.0,
             "the character coverage is {}; it is a share of the characters, from 0.9 to 1",
             options.character_coverage);
  SMOE_CHECK(ConfigError, options.max_sample_bytes >= 0, "the sample size is {} bytes; it is 0 (all) or more",
             options.max_sample_bytes);
  SMOE_CHECK(ConfigError, options.max_token_characters >= 1 && options.max_token_characters <= 512,
             "the longest token is {} characters; it is from 1 to 512", options.max_token_characters);
  SMOE_CHECK(ConfigError, options.num_threads >= 1 && options.num_threads <= 1024,
             "the number of threads is {}; it is from 1 to 1024", options.num_threads);
  for (const std::string& token : options.special_tokens) {
    // The trainer takes its lists as comma-separated values.
    SMOE_CHECK(ConfigError, !token.empty() && token.find_first_of(",\"\n\r\t ") == std::string::npos,
               "the special token '{}' is empty or has a space, comma, quote or line break", token);
    SMOE_CHECK(ConfigError,
               std::count(options.special_tokens.begin(), options.special_tokens.end(), token) == 1 &&
                   token != "<unk>" && token != "<s>" && token != "</s>",
               "the special token '{}' is given twice (<unk>, <s> and </s> are always there)", token);
  }
}

std::unordered_map<std::string, std::string> trainer_arguments(const TokenizerTrainingOptions& options) {
  std::unordered_map<std::string, std::string> arguments = {
      {"model_type", options.model == TokenizerModel::kUnigram ? "unigram" : "bpe"},
      {"vocab_size", std::to_string(options.vocab_size)},
      {"character_coverage", fmt::format("{}", options.character_coverage)},
      {"num_threads", std::to_string(options.num_threads)},
      {"max_sentencepiece_length", std::to_string(options.max_token_characters)},
      {"max_sentence_length", std::to_string(4 * kSentenceBytes)},
      {"normalization_rule_name", "identity"},
      {"remove_extra_whitespaces", "false"},
      {"add_dummy_prefix", options.add_dummy_prefix ? "true" : "false"},
      {"allow_whitespace_only_pieces", "true"},
      {"split_digits", "true"},
      {"byte_fallback", "true"},
      {"unk_id", "0"},
      {"bos_id", "1"},
      {"eos_id", "2"},
      {"pad_id", "-1"},
      {"minloglevel", "2"},
  };
  if (!options.special_tokens.empty()) {
    arguments["control_symbols"] = fmt::format("{}", fmt::join(options.special_tokens, ","));
  }
  return arguments;
}

std::string remedy(const std::string& problem) {
  return problem.find("required_chars") != std::string::npos
             ? "Each character of the text has a token of its own: a larger vocabulary or a lower character "
               "coverage (--character-coverage) helps"
             : "A smaller vocabulary or more text helps";
}

}  // namespace

TokenizerTrainingResult train_sentencepiece(const DocumentSource& documents,
                                            const TokenizerTrainingOptions& options) {
  check_options(options);
  DocumentSample sample(options.max_sample_bytes, options.seed);
  for (std::string text; documents(text);) {
    sample.add(is_valid_utf8(text) ? text : replace_invalid_utf8(text));
  }
  TokenizerTrainingResult result;
  result.documents = sample.seen_documents();
  result.bytes = sample.seen_bytes();
  result.sampled_bytes = sample.bytes();
  SMOE_CHECK(DataError, result.bytes > 0, "there is no text to train a tokenizer on ({} documents)",
             result.documents);
  const std::vector<std::string> sampled = sample.take();
  result.sampled_documents = static_cast<int64_t>(sampled.size());
  SentenceStream sentences(sampled);
  // The trainer tells nobody how far it is.
  spdlog::info("training a vocabulary of {} on {} of text", options.vocab_size,
               format_bytes(static_cast<double>(result.sampled_bytes)));
  const auto status =
      sentencepiece::SentencePieceTrainer::Train(trainer_arguments(options), &sentences, &result.model);
  SMOE_CHECK(DataError, status.ok() && !result.model.empty(),
             "training a vocabulary of {} on {} bytes of text failed: {}. {}", options.vocab_size,
             result.sampled_bytes, status.ToString(), remedy(status.ToString()));
  return result;
}

TokenizerReport measure_tokenizer(const Tokenizer& tokenizer, const DocumentSource& documents) {
  constexpr size_t kShownBytes = 200;
  TokenizerReport report;
  for (std::string text; documents(text);) {
    const std::vector<int32_t> ids = tokenizer.encode(text);
    ++report.documents;
    report.bytes += static_cast<int64_t>(text.size());
    report.tokens += static_cast<int64_t>(ids.size());
    if (tokenizer.decode(ids) != text) {
      if (report.lossy_documents++ == 0) {
        report.first_lossy = text.substr(0, kShownBytes);
      }
    }
  }
  return report;
}

}  // namespace smoe
