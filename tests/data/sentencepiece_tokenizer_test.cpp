#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "smoe/core/error.h"
#include "smoe/data/tokenizer.h"

namespace smoe {
namespace {

const std::filesystem::path kGolden = std::filesystem::path(SMOE_SOURCE_DIR) / "tests/golden/tokenizers";

std::unique_ptr<Tokenizer> unigram() { return load_tokenizer(kGolden / "sentencepiece_unigram.model"); }

TEST(SentencePiece, ControlSymbolsComeOnlyFromTheExplicitMethod) {
  const auto tokenizer = unigram();
  const int32_t end = tokenizer->token_id("<|im_end|>").value();
  EXPECT_THAT(tokenizer->encode("a<|im_end|>"), testing::Not(testing::Contains(end)));
  const auto ids = tokenizer->encode_with_special_tokens("a<|im_end|>");
  EXPECT_EQ(ids.back(), end);
  EXPECT_EQ(tokenizer->decode(ids), "a");
  EXPECT_EQ(tokenizer->decode(ids, true), "a<|im_end|>");
}

TEST(SentencePiece, TheDummyPrefixStandsBeforeTheTextButNotAfterSpecialTokens) {
  const auto tokenizer = unigram();
  EXPECT_EQ(tokenizer->token(tokenizer->encode("the").front()).substr(0, 3), "\u2581");
  const auto ids = tokenizer->encode_with_special_tokens("<|im_start|>user\nhi<|im_end|>\n<|im_start|> x");
  EXPECT_NE(tokenizer->token(ids[1]).substr(0, 3), "\u2581");
  const auto text = "a<|im_start|>user\nhi<|im_end|>\n<|im_start|> x";
  EXPECT_EQ(tokenizer->decode(tokenizer->encode_with_special_tokens(text), true), text);
}

TEST(SentencePiece, PlainTextGivesTheSameIdsEitherWay) {
  const auto tokenizer = unigram();
  for (const char* text : {"", " ", "  two  spaces ", "line\nbreak\n", "tab\there", "\U0001F600"}) {
    EXPECT_EQ(tokenizer->encode(text), tokenizer->encode_with_special_tokens(text));
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  }
}

TEST(SentencePiece, KnowsItsSpecialIds) {
  const auto tokenizer = unigram();
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_EQ(tokenizer->eos_id(), 2);
  EXPECT_EQ(tokenizer->token(2), "</s>");
  EXPECT_EQ(tokenizer->token_id("</s>"), 2);
  EXPECT_EQ(tokenizer->token_id("no such piece"), std::nullopt);
  EXPECT_EQ(tokenizer->vocab_size(), 900);
}

TEST(SentencePiece, InvalidBytesBecomeReplacementCharacters) {
  const auto tokenizer = unigram();
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("a\xFFz")), "a\uFFFDz");
  EXPECT_EQ(tokenizer->decode({tokenizer->token_id("<0xE2>").value()}), "\uFFFD");
}

TEST(SentencePiece, DamagedModelsAndForeignIdsAreRefused) {
  const auto file = std::filesystem::path(testing::TempDir()) / "damaged.model";
  std::ofstream(file) << "this is text, not a model";
  try {
    load_tokenizer(file);
    FAIL() << "a text file was taken for a model";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(),
                testing::AllOf(testing::HasSubstr("damaged.model"), testing::HasSubstr("SentencePiece")));
  }
  std::ofstream(file, std::ios::trunc) << "";
  EXPECT_THROW(load_tokenizer(file), DataError);
  EXPECT_THROW(unigram()->decode({900}), DataError);
  EXPECT_THROW(unigram()->token(-1), DataError);
}

}  // namespace
}  // namespace smoe
