// Our forward pass against an independent one in numpy: tests/golden/make_reference_logits.py made the
// checkpoints and, with tools/reference_forward.py, the expected logits and routing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "smoe/core/error.h"
#include "smoe/model/checkpoint_reader.h"
#include "smoe/model/inspect.h"
#include "smoe/model/safetensors.h"
#include "temporary_folder.h"

namespace smoe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::filesystem::path golden_folder() {
  return std::filesystem::path(SMOE_SOURCE_DIR) / "tests/golden/reference_logits";
}

class ReferenceLogits : public ::testing::TestWithParam<std::string> {};

TEST_P(ReferenceLogits, AgreeAtEveryBudget) {
  const std::filesystem::path folder = golden_folder() / GetParam();
  const Model model = load_model(folder, at::kCPU);
  const SafetensorsFile expected(folder / "expected.safetensors");
  LogitsRequest request;
  request.tokens_BT = read_token_rows(golden_folder() / "tokens.json", model.config().vocab_size);
  const bool dense = model.config().architecture == Architecture::kDense;
  for (const std::string& budget :
       dense ? std::vector<std::string>{"dense"} : std::vector<std::string>{"few", "many"}) {
    SCOPED_TRACE(budget);
    request.budget = dense ? "" : budget;
    const LogitsResult result = compute_logits(model, request);
    const at::Tensor difference = (result.logits_BTV - expected.tensor("logits." + budget)).abs();
    EXPECT_LT(difference.max().item<float>(), 5e-5F);
    ASSERT_EQ(result.routing_QLE.defined(), expected.contains("routing." + budget));
    if (result.routing_QLE.defined()) {
      EXPECT_TRUE(at::equal(result.routing_QLE, expected.tensor("routing." + budget)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, ReferenceLogits,
                         ::testing::Values("dense", "stepped", "stepped_router_only",
                                           "stepped_input_independent", "stepped_previous_last_mlp",
                                           "stepped_previous_mean_normalized", "vanilla",
                                           "vanilla_unnormalized"),
                         [](const auto& instance) { return instance.param; });

class ComputeLogits : public ::testing::Test {
 protected:
  const Model& stepped() {
    static const Model model = load_model(golden_folder() / "stepped", at::kCPU);
    return model;
  }
  LogitsRequest request() {
    return {.tokens_BT = read_token_rows(golden_folder() / "tokens.json", 23),
            .budget = "few",
            .segment_length = {}};
  }
  std::string error_of(const Model& model, const LogitsRequest& wrong) {
    try {
      compute_logits(model, wrong);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "no error";
  }
};

TEST_F(ComputeLogits, BudgetMayBeGivenByNameOrNumber) {
  LogitsRequest by_number = request();
  by_number.budget = "1";
  EXPECT_TRUE(at::equal(compute_logits(stepped(), by_number).logits_BTV,
                        compute_logits(stepped(), request()).logits_BTV));
}

TEST_F(ComputeLogits, SegmentLengthSetsTheNumberOfRoutedSegments) {
  LogitsRequest changed = request();
  changed.segment_length = 5;
  EXPECT_EQ(compute_logits(stepped(), changed).routing_QLE.sizes(), at::IntArrayRef({2 * 3, 2, 5}));
}

TEST_F(ComputeLogits, RefusesWhatDoesNotApply) {
  LogitsRequest wrong = request();
  wrong.budget = "";
  EXPECT_THAT(error_of(stepped(), wrong), HasSubstr("needs a budget"));
  wrong.budget = "huge";
  EXPECT_THAT(error_of(stepped(), wrong), AllOf(HasSubstr("huge"), HasSubstr("few"), HasSubstr("many")));
  wrong.budget = "few";
  wrong.segment_length = 0;
  EXPECT_THAT(error_of(stepped(), wrong), HasSubstr("the segment length is 0"));

  const Model dense = load_model(golden_folder() / "dense", at::kCPU);
  EXPECT_THAT(error_of(dense, request()), HasSubstr("a dense model has no budgets"));
  wrong.budget = "";
  wrong.segment_length = 4;
  EXPECT_THAT(error_of(dense, wrong), HasSubstr("applies to a stepped_moe only"));
}

TEST(ReadTokenRows, RefusesWhatIsNotARectangleOfIds) {
  const testing::TemporaryFolder folder;
  const auto error_of = [&](const std::string& text) -> std::string {
    std::ofstream(folder / "tokens.json") << text;
    try {
      read_token_rows(folder / "tokens.json", 10);
    } catch (const DataError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(error_of("[[1, 2], [3, 9]]"), "no error");
  EXPECT_THAT(error_of("[[1, 2], [3]]"),
              AllOf(HasSubstr("tokens.json"), HasSubstr("row 1 is not a list of 2 ids")));
  EXPECT_THAT(error_of("[[1, 10]]"),
              HasSubstr("row 0, position 1: 10 is not a token id; allowed are whole numbers "
                        "from 0 to 9"));
  EXPECT_THAT(error_of("[[1, -1]]"), HasSubstr("-1 is not a token id"));
  EXPECT_THAT(error_of("[[1, 1.5]]"), HasSubstr("1.5 is not a token id"));
  EXPECT_THAT(error_of("[1, 2]"), HasSubstr("expected a JSON list of lists"));
  EXPECT_THAT(error_of("[[]]"), HasSubstr("expected a JSON list of lists"));
  EXPECT_THAT(error_of("[[1,"), HasSubstr("tokens.json"));
}

TEST(DescribeCheckpoint, ListsBudgetsAndEveryTensor) {
  const std::string text = describe_checkpoint(golden_folder() / "stepped");
  EXPECT_THAT(text, AllOf(HasSubstr("stepped_moe"), HasSubstr("few: k = 1"), HasSubstr("all files match"),
                          HasSubstr("layers.2.routed_experts.down_proj.weight"), HasSubstr("5 x 12 x 6")));
}

}  // namespace
}  // namespace smoe
