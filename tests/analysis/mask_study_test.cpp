#include "smoe/analysis/mask_study.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "smoe/core/error.h"
#include "temporary_folder.h"

namespace smoe {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

// A token a byte; 0 ends a text.
class ByteTokenizer : public Tokenizer {
 public:
  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> ids;
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  std::vector<int32_t> encode_with_special_tokens(std::string_view text) const override {
    return encode(text);
  }
  std::string decode(const std::vector<int32_t>& ids, bool) const override {
    return {ids.begin(), ids.end()};
  }
  int64_t vocab_size() const override { return 256; }
  std::optional<int32_t> bos_id() const override { return std::nullopt; }
  std::optional<int32_t> eos_id() const override { return 0; }
  std::string token(int32_t id) const override { return std::string(1, static_cast<char>(id)); }
  std::optional<int32_t> token_id(std::string_view) const override { return std::nullopt; }
};

Model small_model() {
  ModelConfig config;
  config.vocab_size = 256;
  config.dim = 32;
  config.num_heads = 2;
  config.num_kv_heads = 2;
  config.head_dim = 16;
  config.num_dense_layers = 1;
  config.dense_ffn_dim = 32;
  config.num_moe_layers = 2;
  config.num_experts = 8;
  config.expert_dim = 8;
  config.budgets = {{"S", 2}, {"L", 4}};
  Model model(config, at::kCPU);
  model.initialize(1);
  return model;
}

at::Tensor masks(const std::vector<std::vector<double>>& rows) {
  std::vector<at::Tensor> all;
  for (const std::vector<double>& row : rows) all.push_back(at::tensor(row, at::kDouble).unsqueeze(0));
  return at::stack(all);
}

TEST(MaskCosine, CountsSharedExperts) {
  const at::Tensor cosine = mask_cosine_QQ(masks({{1, 1, 0, 0}, {1, 0, 1, 0}, {0, 0, 1, 1}, {0, 0, 0, 0}}));
  const at::Tensor expected =
      at::tensor({1.0, 0.5, 0.0, 0.0, 0.5, 1.0, 0.5, 0.0, 0.0, 0.5, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0})
          .view({4, 4})
          .to(at::kDouble);
  EXPECT_TRUE(at::allclose(cosine, expected, 0.0, 1e-7));
}

TEST(TopicSimilarity, SeparatesPairsByTopic) {
  const at::Tensor cosine = mask_cosine_QQ(masks({{1, 1, 0, 0}, {1, 1, 0, 0}, {0, 1, 1, 0}}));
  const TopicSimilarity similarity = topic_similarity(cosine, {0, 0, 1});
  EXPECT_NEAR(similarity.within, 1.0, 1e-12);
  EXPECT_NEAR(similarity.across, 0.5, 1e-12);
  EXPECT_EQ(similarity.within_pairs, 1);
  EXPECT_EQ(similarity.across_pairs, 2);
}

// 4 + 4 things in two clear groups: of the 70 ways to name the groups, 2 are as good as the true one.
TEST(TopicPValue, IsTheShareOfExchangesThatReachTheDifference) {
  std::vector<std::vector<double>> rows;
  for (int i = 0; i < 8; ++i)
    rows.push_back(i < 4 ? std::vector<double>{1, 1, 0, 0} : std::vector<double>{0, 0, 1, 1});
  const at::Tensor cosine = mask_cosine_QQ(masks(rows));
  EXPECT_NEAR(topic_p_value(cosine, {0, 0, 0, 0, 1, 1, 1, 1}, 20000, 1), 2.0 / 70.0, 0.005);
  EXPECT_GT(topic_p_value(cosine, {0, 1, 0, 1, 0, 1, 0, 1}, 1000, 1), 0.9);
}

TEST(NeighborHitRate, IsTheShareOfExpertsThatWereThereBefore) {
  EXPECT_DOUBLE_EQ(neighbor_hit_rate(masks({{1, 1, 0, 0}, {1, 0, 1, 0}, {1, 0, 1, 0}})), 0.75);
  EXPECT_EQ(neighbor_hit_rate(masks({{1, 1, 0, 0}})), 0.0);
}

TEST(MaskStudy, GivesEverySegmentTheTopicOfItsFirstToken) {
  const Model model = small_model();
  // The end token, 7 + 8 letters: segments of 4 start at tokens 0, 4, 8 and 12, and the second topic at
  // token 8.
  const std::vector<TopicText> texts = {{"case", {{"a", "aaaaaaa"}, {"b", "bbbbbbbb"}}}};
  MaskStudyOptions options;
  options.budgets = {0, 1};
  options.segment_length = 4;
  options.hit_rate_lengths = {2, 4, 16};
  const MaskStudy study = study_masks(model, ByteTokenizer(), texts, options);
  ASSERT_EQ(study.budgets.size(), 2U);
  EXPECT_THAT(study.budgets[0].texts[0].topics, ElementsAre("a", "a", "b", "b"));
  EXPECT_EQ(study.budgets[1].texts[0].mask_QLE.sum().item<int64_t>(), 4 * 2 * 4);
  EXPECT_NEAR(study.budgets[1].load_LE.sum().item<double>(), 2 * 4, 1e-9);
  EXPECT_NEAR(
      study.budgets[1].topic_load_GLE.mean(0).sub(study.budgets[1].load_LE).abs().max().item<double>(), 0.0,
      1e-9);
  ASSERT_EQ(study.nesting.size(), 1U);
  EXPECT_GE(study.nesting[0], 0.0);
  EXPECT_LE(study.nesting[0], 1.0);
  const auto json = to_json(study, options);
  EXPECT_EQ(json["budgets"][0]["texts"][0]["cosine"].size(), 4U);
  EXPECT_EQ(json["budgets"][1]["hit_rates"][1]["segment_length"], 4);
  EXPECT_TRUE(json["budgets"][1]["hit_rates"][1]["hit_rate"].is_number());
  EXPECT_TRUE(json["budgets"][1]["hit_rates"][2]["hit_rate"].is_null()) << "one segment has no neighbour";
  EXPECT_THAT(describe(study, options), HasSubstr("case"));
  EXPECT_THAT(describe(study, options), ContainsRegex("L \\(k=4\\).* 0\\.[0-9]{3} [^ ]+ +- [^ ]+\n"));
  EXPECT_TRUE(json["budgets"][0]["between_texts"]["p_value"].is_null());
}

TEST(MaskStudy, ComparesTextsOfOneTopicEach) {
  const Model model = small_model();
  std::vector<TopicText> texts;
  for (int i = 0; i < 3; ++i) {
    texts.push_back({fmt::format("a{}", i), {{"a", "aaaaaaaaaaaaaaaa"}}});
    texts.push_back({fmt::format("b{}", i), {{"b", "zyzyzyzyzyzyzyzy"}}});
  }
  MaskStudyOptions options;
  options.budgets = {0};
  options.segment_length = 4;
  options.permutations = 99;
  const MaskStudy study = study_masks(model, ByteTokenizer(), texts, options);
  const TopicSimilarity& between = study.budgets[0].between_texts;
  EXPECT_EQ(between.within_pairs, 6);
  EXPECT_EQ(between.across_pairs, 9);
  EXPECT_NEAR(between.within, 1.0, 1e-9);  // the same text three times
  EXPECT_LT(between.across, 1.0);
  ASSERT_TRUE(study.budgets[0].p_value);
  EXPECT_LE(*study.budgets[0].p_value, 0.25);
}

// Masks that depend on the position alone: texts of one topic are equally long here, and still alike by
// chance only.
TEST(MaskStudy, FindsNoTopicInRandomMasks) {
  ModelConfig config = small_model().config();
  config.routing.mask_source = MaskSource::kRandom;
  Model model(config, at::kCPU);
  model.initialize(1);
  std::vector<TopicText> texts;
  for (int i = 0; i < 4; ++i) {
    texts.push_back({fmt::format("a{}", i), {{"a", "aaaaaaaaaaaa"}}});
    texts.push_back({fmt::format("b{}", i), {{"b", "zyzyzyzyzyzyzyzyzyzyzyzy"}}});
  }
  MaskStudyOptions options;
  options.budgets = {0};
  options.segment_length = 4;
  options.permutations = 199;
  const BudgetMasks masks = study_masks(model, ByteTokenizer(), texts, options).budgets[0];
  EXPECT_EQ(masks.compared_segments, 3);
  EXPECT_NEAR(masks.between_texts.within, masks.between_texts.across, 1e-9);
  ASSERT_TRUE(masks.p_value);
  EXPECT_EQ(*masks.p_value, 1.0);
}

TEST(MaskStudy, DrawsHeatmaps) {
  if (std::system("command -v gnuplot >/dev/null") != 0) GTEST_SKIP() << "gnuplot is not installed";
  const Model model = small_model();
  const TemporaryFolder folder;
  MaskStudyOptions options;
  options.budgets = {0};
  options.segment_length = 2;
  options.hit_rate_lengths = {2, 4, 64};
  plot_masks(study_masks(model, ByteTokenizer(), {{"my case", {{"a", "aaaaaa"}, {"b", "bbbbbb"}}}}, options),
             options, folder.path());
  for (const char* name : {"similarity-my_case-S.svg", "load-S.svg", "topics-S.svg", "hit_rate.svg"}) {
    EXPECT_GT(std::filesystem::file_size(folder / name), 1000U) << name;
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "load-S.png"));
}

TEST(MaskStudy, RefusesDenseModelsAndShortTexts) {
  const Model model = small_model();
  MaskStudyOptions options;
  options.budgets = {0};
  EXPECT_THROW(study_masks(model, ByteTokenizer(), {{"short", {{"a", "aaa"}}}}, options), DataError);
  ModelConfig dense = model.config();
  dense.architecture = Architecture::kDense;
  dense.num_moe_layers = 0;
  dense.size_embedding = SizeEmbedding::kNone;
  EXPECT_THROW(study_masks(Model(dense, at::kCPU), ByteTokenizer(), {{"t", {{"a", "a"}}}}, options),
               ConfigError);
}

TEST(TopicTexts, ReadsCasesAndDocuments) {
  const TemporaryFolder folder;
  const auto texts = read_topic_texts(folder.write(
      "texts.jsonl",
      "{\"name\":\"c\",\"parts\":[{\"topic\":\"a\",\"text\":\"x\"},{\"topic\":\"b\",\"text\":\"y\"}]}\n\n"
      "{\"text\":\"z\",\"domain\":\"d\"}\n"));
  ASSERT_EQ(texts.size(), 2U);
  EXPECT_EQ(texts[0].parts[1].topic, "b");
  EXPECT_EQ(texts[1].name, "line 3");
  try {
    read_topic_texts(folder.write("bad.jsonl", "{\"text\":\"z\"}\n"));
    FAIL() << "no error";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("bad.jsonl:1"));
    EXPECT_THAT(error.what(), HasSubstr("domain"));
  }
}

}  // namespace
}  // namespace smoe
