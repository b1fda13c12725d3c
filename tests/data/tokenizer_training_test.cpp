#include "smoe/data/tokenizer_training.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/core/random.h"

namespace smoe {
namespace {

using testing::HasSubstr;

DocumentSource source_of(std::vector<std::string> documents) {
  return [documents = std::move(documents), next = size_t{0}](std::string& text) mutable {
    if (next == documents.size()) {
      return false;
    }
    text = documents[next++];
    return true;
  };
}

// Documents with code, numbers, tabs, runs of spaces and several scripts.
std::vector<std::string> sample_documents(int count) {
  static constexpr const char* kSyllables[] = {"ro",   "ute", "gra", "di",  "ent", "lay", "er",
                                               "bud",  "get", "mo",  "del", "tok", "en",  "ex",
                                               "pert", "Grö", "ße",  "эт",  "東",  "京",  "for"};
  SplitMix64 random(5);
  std::vector<std::string> documents;
  for (int i = 0; i < count; ++i) {
    std::string text = fmt::format("Chapter {}\n\n", i);
    for (int word = 0; word < 80; ++word) {
      for (uint64_t syllables = 1 + random.below(3); syllables > 0; --syllables) {
        text += kSyllables[random.below(std::size(kSyllables))];
      }
      text += word % 13 == 12 ? ".\n\n    " : word % 17 == 16 ? "\t" : " ";
    }
    documents.push_back(text + fmt::format("{}  = {}\r\n", i, random.below(100000)));
  }
  return documents;
}

std::unique_ptr<Tokenizer> write_and_load(const std::string& model, const std::string& name) {
  const auto file = std::filesystem::path(testing::TempDir()) / (name + ".model");
  write_file_atomically(file, model);
  return load_tokenizer(file);
}

class TrainedTokenizer : public testing::TestWithParam<std::tuple<TokenizerModel, bool>> {};

TEST_P(TrainedTokenizer, KeepsEveryTextAndPlacesItsSpecialIds) {
  TokenizerTrainingOptions options;
  options.vocab_size = 420;
  options.model = std::get<0>(GetParam());
  options.add_dummy_prefix = std::get<1>(GetParam());
  options.special_tokens = {"<|im_start|>", "<|im_end|>"};
  const auto result = train_sentencepiece(source_of(sample_documents(300)), options);
  EXPECT_EQ(result.documents, 300);
  EXPECT_EQ(result.sampled_bytes, result.bytes);
  const auto tokenizer = write_and_load(result.model, "trained");
  EXPECT_EQ(tokenizer->vocab_size(), 420);
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_EQ(tokenizer->eos_id(), 2);
  EXPECT_EQ(tokenizer->token_id("<|im_end|>"), 4);
  auto texts = sample_documents(20);
  for (const char* text : {"", " ", "  ", "\n", "\t", "\t\n \r\n", " leading", "trailing ", "a  b   c",
                           "\n\n\nx", "12345 6", "\U0001F468\u200D\U0001F469",
                           "ﬁ e\u0301 \u00e9 \u00A0 \u3000", "\x01\x7f", "<s></s><|im_end|>", "  \n  x"}) {
    texts.push_back(text);
  }
  texts.push_back(std::string("nul\0byte", 8));
  const auto report = measure_tokenizer(*tokenizer, source_of(texts));
  EXPECT_EQ(report.lossy_documents, 0) << report.first_lossy;
  EXPECT_GT(report.bytes_per_token(), 2.0);
}

INSTANTIATE_TEST_SUITE_P(Kinds, TrainedTokenizer,
                         testing::Combine(testing::Values(TokenizerModel::kUnigram, TokenizerModel::kBpe),
                                          testing::Bool()));

TEST(TokenizerTraining, EqualInputsGiveAnEqualModelAndAnotherSeedAnotherSample) {
  TokenizerTrainingOptions options;
  options.vocab_size = 400;
  options.max_sample_bytes = 60000;
  const auto documents = sample_documents(300);
  const auto first = train_sentencepiece(source_of(documents), options);
  EXPECT_EQ(first.model, train_sentencepiece(source_of(documents), options).model);
  EXPECT_LE(first.sampled_bytes, 60000);
  EXPECT_GT(first.sampled_bytes, 55000);
  EXPECT_LT(first.sampled_documents, first.documents);
  options.seed = 2;
  EXPECT_NE(first.model, train_sentencepiece(source_of(documents), options).model);
}

TEST(TokenizerTraining, LongDocumentsWithoutLineBreaksAreUsed) {
  TokenizerTrainingOptions options;
  options.vocab_size = 300;
  std::string text;
  for (const std::string& document : sample_documents(100)) {
    for (const char character : document) {
      text += std::string_view(" \n\t\r").find(character) == std::string_view::npos
                  ? std::string(1, character)
                  : "";
    }
  }
  const auto tokenizer = write_and_load(train_sentencepiece(source_of({text}), options).model, "long");
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
}

template <class ErrorType>
std::string error_of(const std::vector<std::string>& documents, const TokenizerTrainingOptions& options) {
  try {
    train_sentencepiece(source_of(documents), options);
  } catch (const ErrorType& error) {
    return error.what();
  }
  return "(no error)";
}

TEST(TokenizerTraining, WhatCannotBeMetIsSaidWithTheRemedy) {
  TokenizerTrainingOptions options;
  options.vocab_size = 200;
  EXPECT_THAT(error_of<ConfigError>({"text"}, options), HasSubstr("more than 259"));
  options.vocab_size = 5000;
  EXPECT_THAT(error_of<DataError>({"much too little text"}, options),
              testing::AllOf(HasSubstr("5000"), HasSubstr("smaller vocabulary or more text")));
  options.vocab_size = 270;
  EXPECT_THAT(
      error_of<DataError>({"a text of more than eleven characters: bdfgjk"}, options),
      testing::AllOf(HasSubstr("larger vocabulary"), testing::Not(HasSubstr("smaller vocabulary or"))));
  EXPECT_THAT(error_of<DataError>({}, options), HasSubstr("no text"));
  options.special_tokens = {"<a>", "<a>"};
  EXPECT_THAT(error_of<ConfigError>({"text"}, options), HasSubstr("given twice"));
  options.special_tokens = {"a,b"};
  EXPECT_THAT(error_of<ConfigError>({"text"}, options), HasSubstr("a,b"));
  options.special_tokens.clear();
  options.character_coverage = 2;
  EXPECT_THAT(error_of<ConfigError>({"text"}, options), HasSubstr("from 0.9 to 1"));
}

}  // namespace
}  // namespace smoe
