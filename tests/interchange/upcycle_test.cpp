// Upcycled models equal the dense one where the rules say so, and nowhere by accident.
#include "smoe/interchange/upcycle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "interchange/interchange_test_support.h"
#include "model/model_test_support.h"
#include "smoe/model/weight_files.h"
#include "temporary_folder.h"

namespace smoe {
namespace {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;

constexpr float kExact = 2e-5F;  // fp32 sums in another order; logits are of the order of 1

class Upcycle : public ::testing::Test {
 protected:
  void SetUp() override {
    dense_.num_dense_layers = 4;
    const Model model = testing::tiny_model(dense_);
    testing::write_checkpoint(folder_ / "dense", model,
                              testing::tokenizer_folder() / "sentencepiece_bpe.model");
  }
  // 40 units in 10 parts of 4.
  ModelConfig split_target() const {
    ModelConfig target = testing::tiny_config(Architecture::kSteppedMoe);
    target.num_dense_layers = 1;
    target.num_experts = 8;
    target.num_shared_experts = 2;
    target.expert_dim = 4;
    target.budgets = {{"few", 2}, {"all", 8}};
    return target;
  }
  ModelConfig copy_target(Architecture architecture, int64_t num_shared) const {
    ModelConfig target = testing::tiny_config(architecture);
    target.num_dense_layers = 1;
    target.num_experts = 5;
    target.num_shared_experts = num_shared;
    target.expert_dim = 40;
    target.budgets = {{"small", 2}, {"large", 4}};
    return target;
  }
  // Largest difference between the logits of the upcycled and the dense model.
  float difference(const ModelConfig& target, const UpcycleOptions& options, const std::string& budget) {
    const std::filesystem::path out = folder_ / fmt::format("out-{}", num_outputs_++);
    upcycle_checkpoint(folder_ / "dense", out, target, options);
    const at::Tensor tokens = testing::random_tokens(2, 13, dense_.vocab_size, 5);
    const at::Tensor expected = testing::checkpoint_logits(folder_ / "dense", tokens);
    return (testing::checkpoint_logits(out, tokens, budget) - expected).abs().max().item<float>();
  }

  ModelConfig dense_ = testing::tiny_config(Architecture::kDense);
  testing::TemporaryFolder folder_;
  int num_outputs_ = 0;
};

TEST_F(Upcycle, SplitWithAllExpertsActiveIsTheDenseModel) {
  EXPECT_LT(difference(split_target(), {}, "all"), kExact);
  UpcycleOptions by_norm;
  by_norm.order = UnitOrder::kNorm;
  EXPECT_LT(difference(split_target(), by_norm, "all"), kExact);
}

TEST_F(Upcycle, SplitWithFewExpertsIsNot) { EXPECT_GT(difference(split_target(), {}, "few"), 100 * kExact); }

TEST_F(Upcycle, SplitWithoutSharedExpertsDealsOutAllUnits) {
  ModelConfig target = split_target();
  target.num_shared_experts = 0;
  target.num_experts = 10;
  target.budgets = {{"all", 10}};
  EXPECT_LT(difference(target, {}, "all"), kExact);
}

TEST_F(Upcycle, LargestUnitsByNormGoToTheSharedExpert) {
  UpcycleOptions options;
  options.order = UnitOrder::kNorm;
  upcycle_checkpoint(folder_ / "dense", folder_ / "out", split_target(), options);
  const WeightFiles weights(folder_ / "out");
  const auto norms = [&](const std::string& part) {
    const auto tensor = [&](const char* name) { return weights.tensor("layers.2." + part + "." + name); };
    const at::Tensor down = tensor("down_proj.weight");
    const at::Tensor columns = down.dim() == 3 ? down.transpose(1, 2).flatten(0, 1) : down.t();
    const auto rows = [&](const char* name) { return tensor(name).flatten(0, -2).norm(2, {1}); };
    return rows("gate_proj.weight") * rows("up_proj.weight") * columns.norm(2, {1});
  };
  EXPECT_GE(norms("shared_expert").min().item<float>(), norms("routed_experts").max().item<float>());
}

TEST_F(Upcycle, CopiesAreTheDenseModelAtTheirBudgetOnly) {
  for (const int64_t num_shared : {0, 1, 2}) {
    const ModelConfig target = copy_target(Architecture::kSteppedMoe, num_shared);
    UpcycleOptions options;
    options.method = UpcycleMethod::kCopy;
    EXPECT_LT(difference(target, options, "large"), kExact) << num_shared;
    EXPECT_GT(difference(target, options, "small"), 100 * kExact) << num_shared;
    options.budget = "small";
    EXPECT_LT(difference(target, options, "small"), kExact) << num_shared;
  }
}

TEST_F(Upcycle, VanillaCopiesAreTheDenseModelAtEveryBudget) {
  for (const int64_t num_shared : {0, 1}) {
    const ModelConfig target = copy_target(Architecture::kVanillaMoe, num_shared);
    UpcycleOptions options;
    options.method = UpcycleMethod::kCopy;
    EXPECT_LT(difference(target, options, "small"), kExact);
    EXPECT_LT(difference(target, options, "large"), kExact);
  }
}

TEST_F(Upcycle, NoiseTellsCopiesApartAndFollowsTheSeed) {
  const ModelConfig target = copy_target(Architecture::kSteppedMoe, 1);
  UpcycleOptions options;
  options.method = UpcycleMethod::kCopy;
  options.noise = 0.01;
  const auto gates = [&](const char* name, uint64_t seed) {
    options.seed = seed;
    upcycle_checkpoint(folder_ / "dense", folder_ / name, target, options);
    return WeightFiles(folder_ / name).tensor("layers.1.routed_experts.gate_proj.weight");
  };
  const at::Tensor first = gates("first", 1);
  EXPECT_FALSE(at::equal(first[0], first[1]));
  const at::Tensor original = WeightFiles(folder_ / "dense").tensor("layers.1.feed_forward.gate_proj.weight");
  EXPECT_NEAR(((first - original).std() / original.std()).item<float>(), 0.01, 0.002);
  EXPECT_TRUE(at::equal(gates("again", 1), first));
  EXPECT_FALSE(at::equal(gates("other", 2), first));
}

TEST_F(Upcycle, TakesOverTheTokenizerAndStartsSizeEmbeddingsAtZero) {
  upcycle_checkpoint(folder_ / "dense", folder_ / "out", split_target(), {});
  EXPECT_EQ(checkpoint_tokenizer(folder_ / "out").filename(), "tokenizer.model");
  EXPECT_EQ(checkpoint_sequence_length(folder_ / "out"), 64);
  const WeightFiles weights(folder_ / "out");
  EXPECT_EQ(weights.tensor("size_embedding.weight").abs().max().item<float>(), 0.0F);
  EXPECT_GT(weights.tensor("mask_generator.proj.weight").std().item<float>(), 0.1F);
}

TEST_F(Upcycle, EveryMisfitIsNamed) {
  ModelConfig target = split_target();
  target.dim = 32;
  target.rope_theta = 5.0;
  target.num_moe_layers = 7;
  target.expert_dim = 5;
  const auto error = [&](const ModelConfig& config, const UpcycleOptions& options) {
    return error_of([&] { upcycle_checkpoint(folder_ / "dense", folder_ / "out", config, options); });
  };
  EXPECT_THAT(error(target, {}),
              AllOf(HasSubstr("model.dim is 32, but 24 in the dense model"),
                    HasSubstr("model.rope_theta is 5"), HasSubstr("is 8, but the dense model has 4"),
                    HasSubstr("is 50, but the dense feed-forward has 40 units")));
  UpcycleOptions copy;
  copy.method = UpcycleMethod::kCopy;
  EXPECT_THAT(error(split_target(), copy), HasSubstr("model.expert_dim is 4, but a copy"));
  EXPECT_THAT(error(copy_target(Architecture::kVanillaMoe, 0), {}), HasSubstr("use method copy"));
  copy.budget = "huge";
  EXPECT_THAT(error(copy_target(Architecture::kSteppedMoe, 1), copy), HasSubstr("huge"));
  testing::write_checkpoint(folder_ / "moe", testing::tiny_model(split_target()));
  EXPECT_THAT(error_of([&] { upcycle_checkpoint(folder_ / "moe", folder_ / "out", split_target(), {}); }),
              HasSubstr("upcycling starts from a dense model"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
}

}  // namespace
}  // namespace smoe
