#include "smoe/data/chat_preview.h"

#include "chat_test_support.h"
#include "data_test_support.h"
#include "smoe/data/training_data.h"

namespace smoe {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ChatPreviewTest : public ::testing::Test {
 protected:
  ChatPreviewTest() {
    const std::string lines = testing::chat_line({"a", "bcdef"}) + testing::chat_line({"g", "h"});
    const auto file = test::write_text(folder_ / "chats.jsonl", lines);
    DataConfig data;
    data.sequence_length = 64;
    data.sequences = SequenceKind::kPacked;
    SftConfig sft;
    sft.chat_template = testing::template_path("plain");
    batch_ = ValidationData({"x", file.string(), 1.0}, data, sft, *tokenizer_, 300).rows(0, 1);
    options_.segment_length = 4;
  }

  testing::TemporaryFolder folder_;
  std::unique_ptr<Tokenizer> tokenizer_ = load_tokenizer(testing::write_chat_tokenizer(folder_.path()));
  Batch batch_;
  ChatPreviewOptions options_;
};

// BOS "User:\na\nAssistant:\nbcdef" EOS, then BOS "User:\ng\nAssistant:\nh" EOS.
TEST_F(ChatPreviewTest, MarksTrainedTokensSelectorsAndSegments) {
  const std::string text = chat_preview(batch_, 0, *tokenizer_, options_);
  EXPECT_THAT(text, HasSubstr("row 0: 64 tokens, 2 dialogues, 8 trained tokens, 3 segments"));
  EXPECT_THAT(text, HasSubstr("dialogue 0, tokens 0 to 24"));
  EXPECT_THAT(text, HasSubstr("segment, tokens 0 to 23, routed by token 19\n"));
  EXPECT_THAT(text, HasSubstr("n t : ^\u010a +b +c +d +e\n"));
  EXPECT_THAT(text, HasSubstr("segment, tokens 24 to 24, routed by token 24\n      ^+f => +<|endoftext|>\n"));
  EXPECT_THAT(text, HasSubstr("^\u010a +h => +<|endoftext|>\n"));
  EXPECT_THAT(text, Not(HasSubstr("\033")));
  EXPECT_THAT(chat_preview_legend(options_), HasSubstr("+token is trained"));
}

TEST_F(ChatPreviewTest, ColoursInsteadOfMarks) {
  options_.color = true;
  options_.show_ids = true;
  const std::string text = chat_preview(batch_, 0, *tokenizer_, options_);
  EXPECT_THAT(text, HasSubstr("\033[32mb/98\033[0m"));
  EXPECT_THAT(text, HasSubstr("\033[7m\033[32mf/102\033[0m"));
  EXPECT_THAT(text, Not(HasSubstr("+b")));
}

TEST_F(ChatPreviewTest, KeepsToTheWidth) {
  options_.width = 20;
  std::istringstream lines(chat_preview(batch_, 0, *tokenizer_, options_));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("      ")) continue;
    EXPECT_LE(line.size(), 6U + 20U + 2U) << line;
  }
}

}  // namespace
}  // namespace smoe
