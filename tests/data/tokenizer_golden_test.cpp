// Ids against those of the public libraries (tests/golden/tokenizers/make_golden.py).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "smoe/core/files.h"
#include "smoe/data/tokenizer.h"

namespace smoe {
namespace {

const std::filesystem::path kGolden = std::filesystem::path(SMOE_SOURCE_DIR) / "tests/golden/tokenizers";

nlohmann::json read_json(const std::filesystem::path& path) { return nlohmann::json::parse(read_file(path)); }

std::string shown(const nlohmann::json& text) { return text.dump(-1, ' ', true); }

class ByteLevelGolden : public testing::TestWithParam<std::string> {};

TEST_P(ByteLevelGolden, IdsAndTextEqualTheReferenceLibrary) {
  const auto tokenizer = load_tokenizer(kGolden / GetParam());
  const auto cases = read_json(kGolden / (GetParam() + "_ids.json"));
  ASSERT_GT(cases.size(), 70U);
  for (const auto& item : cases) {
    const auto text = item["text"].get<std::string>();
    const auto special_ids = item["ids_with_special_tokens"].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer->encode(text), item["ids"].get<std::vector<int32_t>>()) << shown(item["text"]);
    EXPECT_EQ(tokenizer->encode_with_special_tokens(text), special_ids) << shown(item["text"]);
    if (item.contains("decoded")) {
      EXPECT_EQ(tokenizer->decode(special_ids), item["decoded"].get<std::string>()) << shown(item["text"]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, ByteLevelGolden, testing::Values("llama3", "qwen2", "olmo"),
                         [](const auto& kind) { return kind.param; });

TEST(PreTokenizerGolden, EveryVariantCutsLikeTheReferenceLibrary) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "pre_tokenizer_golden";
  std::filesystem::create_directories(folder);
  auto document = read_json(kGolden / "olmo/tokenizer.json");
  for (const auto& variant : read_json(kGolden / "pre_tokenizer_ids.json")) {
    document["pre_tokenizer"] = variant["pre_tokenizer"];
    const auto file = folder / "tokenizer.json";
    std::ofstream(file) << document;
    const auto tokenizer = load_tokenizer(file);
    for (const auto& item : variant["cases"]) {
      EXPECT_EQ(tokenizer->encode(item["text"].get<std::string>()), item["ids"].get<std::vector<int32_t>>())
          << variant["name"] << ": " << shown(item["text"]);
    }
  }
}

class SentencePieceGolden : public testing::TestWithParam<std::string> {};

TEST_P(SentencePieceGolden, IdsAndTextEqualTheReferenceLibrary) {
  const auto tokenizer = load_tokenizer(kGolden / ("sentencepiece_" + GetParam() + ".model"));
  const auto cases = read_json(kGolden / ("sentencepiece_" + GetParam() + "_ids.json"));
  ASSERT_GT(cases.size(), 70U);
  for (const auto& item : cases) {
    const auto ids = item["ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer->encode(item["text"].get<std::string>()), ids) << shown(item["text"]);
    EXPECT_EQ(tokenizer->decode(ids), item["decoded"].get<std::string>()) << shown(item["text"]);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, SentencePieceGolden, testing::Values("unigram", "bpe"),
                         [](const auto& kind) { return kind.param; });

}  // namespace
}  // namespace smoe
