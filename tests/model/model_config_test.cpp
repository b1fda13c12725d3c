// Cross-field rules of the model config, and the two kinds of files it is read from.
#include "smoe/model/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "smoe/model/segment_options.h"
#include "temporary_folder.h"

namespace smoe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// The error of the default config with these overrides.
std::string error_of(const std::vector<std::string>& overrides) {
  try {
    read_model_config({"", overrides});
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(ModelConfig, DefaultsAreValid) { EXPECT_EQ(error_of({}), "no error"); }

TEST(ModelConfig, KeyHeadsMustDivideQueryHeads) {
  EXPECT_THAT(error_of({"num_kv_heads=3"}),
              AllOf(HasSubstr("num_kv_heads"), HasSubstr("num_heads"), HasSubstr("3 key and value heads")));
  EXPECT_EQ(error_of({"num_kv_heads=2"}), "no error");
}

TEST(ModelConfig, HeadWidthMustBeEven) { EXPECT_THAT(error_of({"head_dim=7"}), HasSubstr("7 is odd")); }

TEST(ModelConfig, DenseModelHasNoMoeLayers) {
  EXPECT_THAT(error_of({"architecture=dense"}), HasSubstr("a dense model has no MoE layers, found 6"));
  EXPECT_EQ(error_of({"architecture=dense", "num_moe_layers=0"}), "no error");
  EXPECT_THAT(error_of({"architecture=dense", "num_moe_layers=0", "num_dense_layers=0"}),
              HasSubstr("at least 1 dense layer"));
}

TEST(ModelConfig, DenseModelIgnoresBudgets) {
  EXPECT_EQ(error_of({"architecture=dense", "num_moe_layers=0", "budgets=[]"}), "no error");
}

TEST(ModelConfig, MoeModelsNeedMoeLayersAndBudgets) {
  for (const char* architecture : {"architecture=stepped_moe", "architecture=vanilla_moe"}) {
    EXPECT_THAT(error_of({architecture, "num_moe_layers=0"}), HasSubstr("at least 1 MoE layer"));
    EXPECT_THAT(error_of({architecture, "budgets=[]"}), HasSubstr("at least 1 budget"));
    EXPECT_EQ(error_of({architecture, "num_dense_layers=0"}), "no error");
  }
}

TEST(ModelConfig, BudgetsMustAscendWithinTheExperts) {
  EXPECT_THAT(error_of({"budgets=[{name: a, experts_per_layer: 8}, {name: b, experts_per_layer: 8}]"}),
              AllOf(HasSubstr("budgets.1.experts_per_layer"), HasSubstr("8 does not exceed the 8")));
  EXPECT_THAT(error_of({"budgets=[{name: a, experts_per_layer: 33}]"}),
              AllOf(HasSubstr("num_experts"), HasSubstr("33 experts a layer, but there are only 32")));
  EXPECT_EQ(error_of({"budgets=[{name: a, experts_per_layer: 32}]"}), "no error");
}

TEST(ModelConfig, OnlySteppedMoeMayRunWithoutRoutedExperts) {
  const std::string budgets = "budgets=[{name: none, experts_per_layer: 0}, {name: b, experts_per_layer: 2}]";
  EXPECT_EQ(error_of({budgets}), "no error");
  EXPECT_THAT(error_of({"architecture=vanilla_moe", budgets}), HasSubstr("at least 1 expert, found 0"));
}

TEST(ModelConfig, BudgetNamesMustBeUsable) {
  EXPECT_THAT(error_of({"budgets=[{name: a, experts_per_layer: 1}, {name: a, experts_per_layer: 2}]"}),
              HasSubstr("\"a\" is the name of an earlier budget"));
  EXPECT_THAT(error_of({"budgets=[{name: '', experts_per_layer: 1}]"}), HasSubstr("the name is empty"));
  EXPECT_THAT(error_of({"budgets=[{name: '4', experts_per_layer: 1}]"}),
              HasSubstr("reads as a number of experts"));
  EXPECT_EQ(error_of({"budgets=[{name: '4', experts_per_layer: 4}]"}), "no error");
}

TEST(ModelConfig, ControlsWithoutLogitsRefuseSettingsOfLogits) {
  EXPECT_THAT(
      error_of({"routing.mask_source=random", "routing.balance.kind=bias"}),
      AllOf(HasSubstr("routing.balance.kind"), HasSubstr("routing.mask_source"), HasSubstr("random")));
  EXPECT_THAT(error_of({"routing.mask_source=prefix", "routing.selection_noise=0.5"}),
              HasSubstr("no logits"));
  EXPECT_THAT(error_of({"routing.mask_source=input_independent", "routing.random_mask_fraction=0.5"}),
              HasSubstr("needs mask source learned"));
  for (const char* source : {"routing.mask_source=random", "routing.mask_source=prefix"}) {
    EXPECT_THAT(error_of({source, "routing.balance.kind=loss"}),
                AllOf(HasSubstr("routing.balance.kind"), HasSubstr("has no logits to balance")));
  }
  EXPECT_EQ(error_of({"routing.mask_source=input_independent", "routing.balance.kind=loss"}), "no error");
  EXPECT_THAT(error_of({"routing.mask_source=input_independent", "routing.selector_position=previous_mean"}),
              AllOf(HasSubstr("routing.selector_position"), HasSubstr("looks at no token"),
                    HasSubstr("leave it at first")));
  EXPECT_THAT(error_of({"routing.selector_position=last"}),
              AllOf(HasSubstr("previous_last"), HasSubstr("previous_mean"), HasSubstr("`last`")));
  EXPECT_THAT(error_of({"routing.mask_head.kind=mlp", "routing.mask_head.hidden_dim=0"}),
              AllOf(HasSubstr("routing.mask_head.hidden_dim"), HasSubstr("at least 1")));
  EXPECT_THAT(error_of({"routing.mask_head.kind=mlp", "routing.mask_head.hidden_dim=100000000000000"}),
              HasSubstr("the limit is"));
}

TEST(ModelConfig, AbsurdSizesAreRefused) {
  EXPECT_THAT(error_of({"dim=1000000000", "num_experts=1000000000"}), HasSubstr("parameters; the limit is"));
}

TEST(ModelConfig, AllProblemsAreReportedTogether) {
  EXPECT_THAT(
      error_of({"num_kv_heads=3", "head_dim=7", "num_moe_layers=0"}),
      AllOf(HasSubstr("3 problems"), HasSubstr("num_kv_heads"), HasSubstr("odd"), HasSubstr("MoE layer")));
}

TEST(ModelConfig, ReadsTheModelSectionOfARunAndAFileOfModelKeys) {
  const testing::TemporaryFolder folder;
  std::ofstream(folder / "run.yaml") << "model: {dim: 96}\nsteps: 3\nnot_looked_at: {x: 1}\n";
  std::ofstream(folder / "model.yaml") << "dim: 48\n";
  EXPECT_EQ(read_model_config({folder / "run.yaml", {}}).dim, 96);
  EXPECT_EQ(read_model_config({folder / "run.yaml", {"model.dim=32"}}).dim, 32);
  EXPECT_EQ(read_model_config({folder / "model.yaml", {}}).dim, 48);
  EXPECT_EQ(read_model_config({folder / "model.yaml", {"dim=32"}}).dim, 32);
}

TEST(ModelConfig, UnknownKeyIsNamedWithItsPlaceAndNearestKey) {
  const testing::TemporaryFolder folder;
  std::ofstream(folder / "run.yaml") << "model:\n  num_expert: 5\n";
  try {
    read_model_config({folder / "run.yaml", {}});
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("run.yaml:2:3"), HasSubstr("model.num_expert"), HasSubstr("num_experts")));
  }
}

TEST(SegmentOptions, AreRefusedForModelsWithoutSegments) {
  ModelConfig config;
  config.architecture = Architecture::kSteppedMoe;
  EXPECT_NO_THROW(check_segment_options(config, true, true));
  for (const Architecture architecture : {Architecture::kDense, Architecture::kVanillaMoe}) {
    config.architecture = architecture;
    EXPECT_NO_THROW(check_segment_options(config, false, false));
    const std::string name(enum_to_name(architecture));
    EXPECT_THAT([&] { check_segment_options(config, true, false); },
                ThrowsMessage<ConfigError>(AllOf(HasSubstr("--segment-length"), HasSubstr(name))));
    EXPECT_THAT([&] { check_segment_options(config, false, true); },
                ThrowsMessage<ConfigError>(AllOf(HasSubstr("--routing"), HasSubstr(name))));
  }
}

}  // namespace
}  // namespace smoe
