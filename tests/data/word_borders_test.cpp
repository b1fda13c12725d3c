// Encoding word by word gives what SentencePiece gives for the whole text.
#include "word_borders.h"

#include <gtest/gtest.h>
#include <sentencepiece_processor.h>

#include <filesystem>

#include "smoe/core/files.h"
#include "smoe/core/random.h"
#include "smoe/data/tokenizer.h"

namespace smoe {
namespace {

const std::filesystem::path kGolden = std::filesystem::path(SMOE_SOURCE_DIR) / "tests/golden/tokenizers";

std::optional<WordBorders> borders_of(const std::string& model_file, std::vector<std::string> pieces) {
  return WordBorders::of(read_file(kGolden / model_file), pieces);
}

std::vector<std::string> cut(const WordBorders& borders, std::string_view text) {
  std::vector<std::string> words;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = borders.next(text, begin);
    words.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

TEST(WordBorders, LieWhereNoPieceHasBothBytes) {
  const auto borders = borders_of("sentencepiece_bpe.model", {"\u2581ab", "bc", "\u2581\u2581", "\u00e4"});
  ASSERT_TRUE(borders.has_value());
  EXPECT_EQ(cut(*borders, " abc  ab c"), (std::vector<std::string>{" abc", "  ab", " ", "c"}));
  // A space may be written as U+2581 in the text itself.
  EXPECT_EQ(cut(*borders, "c\u2581ab\u2581 a"), (std::vector<std::string>{"c", "\u2581ab", "\u2581 a"}));
}

TEST(WordBorders, DoNotCutCharactersThatAreInNoPiece) {
  const auto borders = borders_of("sentencepiece_bpe.model", {"a"});
  EXPECT_EQ(cut(*borders, "a\u20ac\U0001F600"), (std::vector<std::string>{"a", "\u20ac", "\U0001F600"}));
}

TEST(WordBorders, AreThereForBpeOnly) {
  EXPECT_TRUE(borders_of("sentencepiece_bpe.model", {}).has_value());
  EXPECT_FALSE(borders_of("sentencepiece_unigram.model", {}).has_value());
  EXPECT_FALSE(WordBorders::of("", {}).has_value());
  EXPECT_FALSE(WordBorders::of("\x12\xFF\xFF\xFF", {}).has_value());
}

TEST(WordBorders, AreNotThereForModelsThatChangeTextOrJoinUnknownCharacters) {
  const std::string model = read_file(kGolden / "sentencepiece_bpe.model");
  // Settings that are appended to a model replace its own: normalizer_spec (3), then trainer_spec (2).
  for (const std::string_view change :
       {std::string_view("\x1A\x03\x12\x01x", 5), std::string_view("\x1A\x02\x20\x01", 4),
        std::string_view("\x1A\x02\x28\x00", 4), std::string_view("\x12\x03\xC0\x01\x01", 5),
        std::string_view("\x12\x03\x98\x02\x00", 5)}) {
    EXPECT_FALSE(WordBorders::of(model + std::string(change), {}).has_value());
  }
}

TEST(SentencePiece, WordsGiveTheIdsOfTheWholeText) {
  const std::filesystem::path file = kGolden / "sentencepiece_bpe.model";
  const auto tokenizer = load_tokenizer(file);
  sentencepiece::SentencePieceProcessor whole;
  ASSERT_TRUE(whole.Load(file.string()).ok());
  const std::vector<std::string> parts = {
      " ",          " ",      " ",   "\n",     "\t",     "\u2581",  "<tool_call>",
      "the",        " of",    "ing", "a",      "e",      "th",      "12",
      "7",          ".",      ",\n", "\r\n",   "\u00e4", "e\u0301", "\u65e5\u672c",
      "\U0001F600", "\u00a0", "<s>", "Python", "_",      "(self)",  std::string(1, '\0')};
  SplitMix64 random(5);
  for (int i = 0; i < 3000; ++i) {
    std::string text;
    for (uint64_t part = random.below(40); part > 0; --part) text += parts[random.below(parts.size())];
    std::vector<int> expected;
    ASSERT_TRUE(whole.Encode(text, &expected).ok());
    ASSERT_EQ(tokenizer->encode(text), expected) << text;
    ASSERT_EQ(tokenizer->encode(text), expected) << "the second time: " << text;
  }
}

}  // namespace
}  // namespace smoe
