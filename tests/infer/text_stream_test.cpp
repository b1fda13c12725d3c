#include "smoe/infer/text_stream.h"

#include <gtest/gtest.h>

#include "infer/infer_test_support.h"
#include "smoe/core/error.h"
#include "smoe/core/random.h"
#include "utf8.h"

namespace smoe {
namespace {

using testing::PieceTokenizer;

std::filesystem::path golden(const std::string& name) {
  return std::filesystem::path(SMOE_SOURCE_DIR) / "tests/golden/tokenizers" / name;
}

// Pushes all ids, checks that every piece is complete UTF-8, and returns the whole.
std::string streamed(const Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                     const std::vector<std::string>& stops = {}) {
  TextStream stream(tokenizer, stops);
  std::string text;
  for (const int32_t id : ids) {
    const std::string piece = stream.push(id);
    EXPECT_TRUE(is_valid_utf8(piece)) << id;
    text += piece;
    if (stream.match()) break;
  }
  return text + stream.finish();
}

class GoldenTokenizers : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(TextStream, GoldenTokenizers,
                         ::testing::Values("llama3", "qwen2", "olmo", "sentencepiece_bpe.model",
                                           "sentencepiece_unigram.model"),
                         [](const auto& test) { return std::filesystem::path(test.param).stem().string(); });

TEST_P(GoldenTokenizers, StreamedTextEqualsTheTextOfAllIds) {
  const auto tokenizer = load_tokenizer(golden(GetParam()));
  const std::string text =
      "Hello  world,   naïve café — 日本語 🙂👩‍🚀 e\xCC\x81\n\n\tdef f(x):\n        return "
      "x\n "
      " "
      " "
      "trailing "
      "  ";
  const std::vector<int32_t> ids = tokenizer->encode(text + text + text);
  EXPECT_EQ(streamed(*tokenizer, ids), tokenizer->decode(ids));
}

TEST_P(GoldenTokenizers, AnyIdsStreamToTheTextOfAllIds) {
  const auto tokenizer = load_tokenizer(golden(GetParam()));
  SplitMix64 random(11);
  for (int round = 0; round < 60; ++round) {
    std::vector<int32_t> ids;
    // Small ranges of ids bring long runs of bytes and spaces, large ones everything.
    const uint64_t range = round % 3 == 0 ? 300 : static_cast<uint64_t>(tokenizer->vocab_size());
    for (int i = 0; i < 150; ++i) {
      ids.push_back(static_cast<int32_t>(random.below(std::min<uint64_t>(range, tokenizer->vocab_size()))));
    }
    ASSERT_EQ(streamed(*tokenizer, ids), tokenizer->decode(ids)) << "round " << round;
  }
}

TEST_P(GoldenTokenizers, TextGoesOnFromItsContextWithItsSpace) {
  const auto tokenizer = load_tokenizer(golden(GetParam()));
  const std::vector<int32_t> prompt = tokenizer->encode("Once upon a");
  const std::vector<int32_t> whole = tokenizer->encode("Once upon a time there was");
  ASSERT_TRUE(std::equal(prompt.begin(), prompt.end(), whole.begin()));
  TextStream stream(*tokenizer, {}, prompt);
  std::string text;
  for (size_t i = prompt.size(); i < whole.size(); ++i) text += stream.push(whole[i]);
  EXPECT_EQ(text + stream.finish(), " time there was");
}

TEST(TextStream, HoldsBackHalfACharacter) {
  const auto tokenizer = load_tokenizer(golden("qwen2"));
  const std::vector<int32_t> ids = tokenizer->encode("a🧿");
  ASSERT_GT(ids.size(), 2u);
  TextStream stream(*tokenizer, {});
  EXPECT_EQ(stream.push(ids[0]), "a");
  for (size_t i = 1; i + 1 < ids.size(); ++i) EXPECT_EQ(stream.push(ids[i]), "");
  EXPECT_EQ(stream.push(ids.back()), "🧿");
}

TEST(StopMatcher, FindsStopsThatStraddleTokens) {
  const PieceTokenizer tokenizer({"say ", "EN", "D", " more", "E", "N"});
  TextStream stream(tokenizer, {"END"});
  EXPECT_EQ(stream.push(0), "say ");
  EXPECT_EQ(stream.push(1), "");
  EXPECT_FALSE(stream.match());
  EXPECT_EQ(stream.push(2), "");
  EXPECT_EQ(stream.match(), "END");
  EXPECT_EQ(stream.finish(), "");
}

TEST(StopMatcher, GivesBackWhatOnlyLookedLikeAStop) {
  const PieceTokenizer tokenizer({"say ", "EN", "D", " more", "E", "N"});
  EXPECT_EQ(streamed(tokenizer, {0, 1, 3, 4}, {"END"}), "say EN moreE");
  EXPECT_EQ(streamed(tokenizer, {4, 1, 2}, {"END"}), "E");
}

TEST(StopMatcher, CutsAtTheEarliestOfSeveralStops) {
  StopMatcher matcher({"cd", "bcde", "x"});
  EXPECT_EQ(matcher.push("abcde x"), "a");
  EXPECT_EQ(matcher.match(), "bcde");
}

TEST(StopMatcher, AnyDivisionOfATextGivesTheSameCut) {
  SplitMix64 random(5);
  for (int round = 0; round < 3000; ++round) {
    std::string text, seen, found;
    for (int i = 0; i < 14; ++i) text += static_cast<char>('a' + random.below(2));
    const std::vector<std::string> stops = {"abba", "babb", "aaaa"};
    StopMatcher matcher(stops);
    size_t pushed = 0;
    while (pushed < text.size() && !matcher.match()) {
      const size_t count = 1 + random.below(3);
      found += matcher.push(text.substr(pushed, count));
      pushed = std::min(pushed + count, text.size());
    }
    found += matcher.finish();
    seen = text.substr(0, pushed);
    size_t cut = seen.size();
    for (const std::string& stop : stops) cut = std::min(cut, seen.find(stop));
    EXPECT_EQ(found, seen.substr(0, cut)) << text;
    EXPECT_EQ(matcher.match().has_value(), cut < seen.size());
  }
}

TEST(StopMatcher, LeavesOutAnEndingOnlyAtTheEnd) {
  for (const std::string text : {"say ##, then ###", "###", "a###b##", "a", "a#####"}) {
    for (size_t step = 1; step <= text.size(); ++step) {
      StopMatcher kept({}, "###");
      StopMatcher dropped({}, "###");
      std::string whole, cut;
      for (size_t at = 0; at < text.size(); at += step) {
        whole += kept.push(text.substr(at, step));
        cut += dropped.push(text.substr(at, step));
      }
      const bool has_ending = text.ends_with("###");
      EXPECT_EQ(whole + kept.finish(false), text) << step;
      EXPECT_EQ(cut + dropped.finish(true), has_ending ? text.substr(0, text.size() - 3) : text) << step;
    }
  }
}

TEST(StopMatcher, RefusesAnEmptyStop) { EXPECT_THROW(StopMatcher({"a", ""}), ConfigError); }

}  // namespace
}  // namespace smoe
