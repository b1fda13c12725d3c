#include "smoe/infer/generation_console.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "infer/infer_test_support.h"

namespace smoe {
namespace {

using ::testing::HasSubstr;

class Console : public ::testing::Test {
 protected:
  const ModelConfig config_ = testing::tiny_config(Architecture::kSteppedMoe);
  const Model model_ = testing::tiny_model(config_);
  const testing::PieceTokenizer tokenizer_ = testing::word_tokenizer();
  Generator generator_{model_, tokenizer_};
  std::ostringstream out_;

  GenerationConsole console() {
    GenerationRequest settings = testing::greedy_request({}, 0, 4, RoutingMode::kSegments, 8);
    settings.context_limit = 24;
    return {generator_, config_, settings, plain_dialogue(tokenizer_, BosPolicy::kNever), out_};
  }
  std::string said() { return std::exchange(out_, std::ostringstream()).str(); }
  std::string expected(const std::string& prompt, int64_t budget, int64_t segment_length) {
    return generator_
               .generate(testing::greedy_request(tokenizer_.encode(prompt), budget, segment_length,
                                                 RoutingMode::kSegments, 8))
               .text +
           "\n";
  }
};

TEST_F(Console, BudgetAndSegmentLengthChangeBetweenTurns) {
  GenerationConsole console = this->console();
  EXPECT_TRUE(console.handle(" w1 w2 w3"));
  EXPECT_EQ(said(), expected(" w1 w2 w3", 0, 4));
  for (const char* command : {"/reset", "/budget three", "/segment 2"}) EXPECT_TRUE(console.handle(command));
  EXPECT_THAT(said(), HasSubstr("segment length 2"));
  EXPECT_TRUE(console.handle(" w1 w2 w3"));
  EXPECT_EQ(said(), expected(" w1 w2 w3", 2, 2));
}

TEST_F(Console, TheDialogueGoesOnUntilItIsReset) {
  GenerationConsole console = this->console();
  console.handle(" w1");
  const std::string first = said();
  console.handle(" w5");
  EXPECT_EQ(said(), expected(" w1" + first.substr(0, first.size() - 1) + " w5", 0, 4));
  console.handle("/reset");
  said();
  console.handle(" w1");
  EXPECT_EQ(said(), first);
}

TEST_F(Console, MistakesAreExplainedAndChangeNothing) {
  GenerationConsole console = this->console();
  EXPECT_TRUE(console.handle("/budget huge"));
  EXPECT_THAT(said(), AllOf(HasSubstr("error"), HasSubstr("three")));
  EXPECT_TRUE(console.handle("/segment 3x"));
  EXPECT_THAT(said(), HasSubstr("whole number"));
  EXPECT_TRUE(console.handle("/nonsense"));
  EXPECT_THAT(said(), AllOf(HasSubstr("/nonsense"), HasSubstr("/budget NAME")));
  std::string long_turn;
  for (int i = 0; i < 30; ++i) long_turn += " w1";
  EXPECT_TRUE(console.handle(long_turn));
  EXPECT_THAT(said(), AllOf(HasSubstr("30 tokens"), HasSubstr("23 at most"), HasSubstr("/reset")));
  console.handle(" w1");
  EXPECT_EQ(said(), expected(" w1", 0, 4));
}

TEST_F(Console, QuitEndsAndStatsReport) {
  std::istringstream lines(" w1 w2\n/stats\n/quit\n w9\n");
  console().run(lines, "> ");
  EXPECT_THAT(said(), AllOf(HasSubstr("prefill 2 tokens"), HasSubstr("decode 7 tokens")));
  EXPECT_EQ(generator_.stats().new_tokens, 8);
}

}  // namespace
}  // namespace smoe
