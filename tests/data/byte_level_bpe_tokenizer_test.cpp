#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/core/random.h"
#include "smoe/data/tokenizer.h"
#include "utf8.h"

namespace smoe {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

const std::filesystem::path kGolden = std::filesystem::path(SMOE_SOURCE_DIR) / "tests/golden/tokenizers";

// A folder with a changed copy of a golden tokenizer.
class ChangedTokenizer : public testing::Test {
 protected:
  ChangedTokenizer() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(testing::TempDir()) / (std::string("bpe_") + test->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    document_ = Json::parse(read_file(kGolden / "llama3/tokenizer.json"));
  }
  ~ChangedTokenizer() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& name, const Json& value) { std::ofstream(folder_ / name) << value; }
  std::unique_ptr<Tokenizer> load() {
    write("tokenizer.json", document_);
    return load_tokenizer(folder_);
  }
  // The message of the DataError that loading throws.
  std::string error() {
    try {
      load();
    } catch (const DataError& error) {
      return error.what();
    }
    return "(no error)";
  }

  std::filesystem::path folder_;
  Json document_;
};

// Random text from a mix of scripts, spaces and rare planes.
std::string random_text(SplitMix64& random) {
  static constexpr std::pair<char32_t, char32_t> kRanges[] = {
      {0x20, 0x7E},     {0x20, 0x7E},     {0x61, 0x7A},       {0x00, 0x1F},
      {0x20, 0x20},     {0x09, 0x0D},     {0x80, 0x24F},      {0x300, 0x36F},
      {0x400, 0x4FF},   {0x600, 0x6FF},   {0x2000, 0x206F},   {0x3040, 0x30FF},
      {0x4E00, 0x9FFF}, {0xFF00, 0xFFFF}, {0x1F300, 0x1F9FF}, {0x10000, 0x10FFFF}};
  std::string text;
  const uint64_t length = random.below(60);
  for (uint64_t i = 0; i < length; ++i) {
    const auto& [first, last] = kRanges[random.below(std::size(kRanges))];
    append_utf8(first + static_cast<char32_t>(random.below(last - first + 1)), text);
  }
  return text;
}

TEST(ByteLevelBpe, DecodingGivesBackEveryValidText) {
  const auto tokenizer = load_tokenizer(kGolden / "llama3");
  SplitMix64 random(7);
  for (int round = 0; round < 3000; ++round) {
    const std::string text = random_text(random);
    ASSERT_EQ(tokenizer->decode(tokenizer->encode(text)), text) << "round " << round;
    ASSERT_EQ(tokenizer->decode(tokenizer->encode_with_special_tokens(text), true), text)
        << "round " << round;
  }
}

TEST(ByteLevelBpe, EncodeNeverYieldsSpecialTokensAndTheOtherMethodDoes) {
  const auto tokenizer = load_tokenizer(kGolden / "llama3");
  const std::string text = "a<|eot_id|>b";
  const int32_t special = tokenizer->token_id("<|eot_id|>").value();
  EXPECT_THAT(tokenizer->encode(text), testing::Not(testing::Contains(special)));
  const auto ids = tokenizer->encode_with_special_tokens(text);
  EXPECT_THAT(ids, testing::ElementsAre(tokenizer->token_id("a"), special, tokenizer->token_id("b")));
  EXPECT_EQ(tokenizer->decode(ids), "ab");
  EXPECT_EQ(tokenizer->decode(ids, true), text);
}

TEST(ByteLevelBpe, InvalidBytesBecomeReplacementCharacters) {
  const auto tokenizer = load_tokenizer(kGolden / "llama3");
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("a\xFF\xC3(\xE2\x82")), "a\uFFFD\uFFFD(\uFFFD");
  // Half of a character that was cut between two tokens.
  const auto ids = tokenizer->encode("\u2603");
  ASSERT_GT(ids.size(), 1U);
  EXPECT_EQ(tokenizer->decode({ids.front()}), "\uFFFD");
}

TEST(ByteLevelBpe, IdsOutsideTheVocabularyAreRefused) {
  const auto tokenizer = load_tokenizer(kGolden / "llama3");
  EXPECT_THROW(tokenizer->decode({-1}), DataError);
  EXPECT_THROW(tokenizer->token(static_cast<int32_t>(tokenizer->vocab_size())), DataError);
}

TEST(ByteLevelBpe, VeryLongRunsAreEncodedInReasonableTime) {
  const auto tokenizer = load_tokenizer(kGolden / "llama3");
  for (const std::string& text :
       {std::string(1000000, ' '), std::string(1000000, 'a'), std::string(1000000, '\n'),
        std::string(500000, ' ') + "x" + std::string(500000, '.')}) {
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  }
}

TEST(ByteLevelBpe, ThreadsGetTheIdsThatOneThreadGets) {
  const auto tokenizer = load_tokenizer(kGolden / "qwen2");
  std::vector<std::string> texts;
  std::vector<std::vector<int32_t>> expected;
  SplitMix64 random(3);
  for (int i = 0; i < 400; ++i) {
    texts.push_back(random_text(random) + " the quick brown fox " + std::to_string(i));
    expected.push_back(load_tokenizer(kGolden / "qwen2")->encode(texts.back()));
    if (i == 40) break;  // a fresh tokenizer for each text, so that no cache is shared
  }
  std::vector<std::vector<std::vector<int32_t>>> found(4);
  std::vector<std::thread> threads;
  for (auto& result : found) {
    threads.emplace_back([&] {
      for (const auto& text : texts) {
        result.push_back(tokenizer->encode(text));
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  EXPECT_THAT(found, testing::Each(expected));
}

TEST(ByteLevelBpe, TheHashIsThatOfTheFile) {
  const auto tokenizer = load_tokenizer(kGolden / "llama3");
  EXPECT_EQ(tokenizer->hash(), sha256_of_file(kGolden / "llama3/tokenizer.json"));
  EXPECT_EQ(tokenizer->path(), kGolden / "llama3/tokenizer.json");
}

TEST_F(ChangedTokenizer, BosComesFromTheTemplateAndEosIsNotGuessed) {
  const auto tokenizer = load();
  EXPECT_EQ(tokenizer->bos_id(), tokenizer->token_id("<|begin_of_text|>"));
  EXPECT_EQ(tokenizer->eos_id(), std::nullopt);
}

TEST_F(ChangedTokenizer, TokenizerConfigDecidesBeforeTheOtherFiles) {
  write("tokenizer_config.json", {{"bos_token", nullptr}, {"eos_token", {{"content", "<|eot_id|>"}}}});
  write("generation_config.json", {{"bos_token_id", 1}, {"eos_token_id", {2, 3}}});
  const auto tokenizer = load();
  EXPECT_EQ(tokenizer->bos_id(), std::nullopt);
  EXPECT_EQ(tokenizer->eos_id(), tokenizer->token_id("<|eot_id|>"));
}

TEST_F(ChangedTokenizer, GenerationConfigGivesTheFirstOfItsIds) {
  write("generation_config.json", {{"eos_token_id", {2, 3}}});
  write("config.json", {{"eos_token_id", 9}, {"bos_token_id", 5}});
  EXPECT_EQ(load()->eos_id(), 2);
  EXPECT_EQ(load()->bos_id(), 5);
}

TEST_F(ChangedTokenizer, AnEosThatTheVocabularyLacksIsAnError) {
  write("tokenizer_config.json", {{"eos_token", "</nowhere>"}});
  EXPECT_THAT(error(),
              testing::AllOf(HasSubstr("tokenizer_config.json: eos_token"), HasSubstr("</nowhere>")));
  write("tokenizer_config.json", Json::object());
  write("config.json", {{"eos_token_id", 1000000}});
  EXPECT_THAT(error(), testing::AllOf(HasSubstr("config.json: eos_token_id"), HasSubstr("1000000")));
}

TEST_F(ChangedTokenizer, WhatIsNotSupportedIsNamedWithItsPath) {
  const Json original = document_;
  const auto error_after = [&](const std::function<void(Json&)>& change) {
    document_ = original;
    change(document_);
    return error();
  };
  const auto expect = [&](const std::string& path, const std::string& fact,
                          const std::function<void(Json&)>& change) {
    EXPECT_THAT(error_after(change), testing::AllOf(HasSubstr("tokenizer.json: " + path), HasSubstr(fact)));
  };
  expect("model.type", "WordPiece", [](Json& d) { d["model"]["type"] = "WordPiece"; });
  expect("model.byte_fallback", "tokenizer.model", [](Json& d) { d["model"]["byte_fallback"] = true; });
  expect("model.dropout", "random", [](Json& d) { d["model"]["dropout"] = 0.1; });
  expect("model.end_of_word_suffix", "only null", [](Json& d) { d["model"]["end_of_word_suffix"] = "</w>"; });
  expect("model: the key 'novelty'", "ignore_merges", [](Json& d) { d["model"]["novelty"] = 1; });
  expect("model.merges[0]", "nowhere", [](Json& d) { d["model"]["merges"][0] = {"nowhere", "a"}; });
  expect("model.merges[2]", "one space", [](Json& d) { d["model"]["merges"][2] = "abc"; });
  expect("model.vocab", "same id 5", [](Json& d) { d["model"]["vocab"]["added"] = 5; });
  expect("model.vocab", "0x41", [](Json& d) {
    d["model"]["vocab"].erase("A");
    d["model"]["merges"] = Json::array();
  });
  expect("model.vocab", "integers", [](Json& d) { d["model"]["vocab"]["A"] = "x"; });
  expect("model", "'vocab' is missing", [](Json& d) { d["model"].erase("vocab"); });
  expect("normalizer", "NFKC", [](Json& d) { d["normalizer"] = {{"type", "NFKC"}}; });
  expect("decoder.type", "WordPiece", [](Json& d) { d["decoder"]["type"] = "WordPiece"; });
  expect("pre_tokenizer", "Metaspace", [](Json& d) { d["pre_tokenizer"] = {{"type", "Metaspace"}}; });
  expect("top level", "'pre_tokenizer' is missing", [](Json& d) { d["pre_tokenizer"] = nullptr; });
  const auto set_split = [](Json& d, const char* key, const Json& value) {
    d["pre_tokenizer"]["pretokenizers"][0][key] = value;
  };
  expect("pre_tokenizer.pretokenizers[0].behavior", "Sideways",
         [&](Json& d) { set_split(d, "behavior", "Sideways"); });
  expect("pre_tokenizer.pretokenizers[0].pattern", "offset", [&](Json& d) {
    set_split(d, "pattern", {{"Regex", "(a"}});
  });
  expect("pre_tokenizer.pretokenizers[0].pattern", "intersections", [&](Json& d) {
    set_split(d, "pattern", {{"Regex", "[a-z&&[^b]]"}});
  });
  expect("pre_tokenizer", "no ByteLevel", [](Json& d) { d["pre_tokenizer"]["pretokenizers"].erase(1); });
  expect("pre_tokenizer.pretokenizers[1]", "every word",
         [](Json& d) { d["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = true; });
  expect("added_tokens[0]", "has the id", [](Json& d) { d["added_tokens"][0]["id"] = 7; });
}

TEST_F(ChangedTokenizer, BrokenJsonAndAmbiguousFoldersAreErrors) {
  std::ofstream(folder_ / "tokenizer.json") << "{\"model\": ";
  EXPECT_THROW(load_tokenizer(folder_), DataError);
  std::ofstream(folder_ / "tokenizer.model") << "x";
  EXPECT_THROW(load_tokenizer(folder_), DataError);
  EXPECT_THROW(load_tokenizer(folder_ / "tokenizer.model"), DataError);
  EXPECT_THROW(load_tokenizer(folder_ / "nothing"), DataError);
}

}  // namespace
}  // namespace smoe
