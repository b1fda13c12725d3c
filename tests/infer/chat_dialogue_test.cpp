#include "smoe/infer/chat_dialogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "chat_test_support.h"
#include "smoe/core/error.h"
#include "smoe/infer/row_routing.h"
#include "temporary_folder.h"

namespace smoe {
namespace {

using ::testing::ElementsAre;

class ChatDialogueTest : public ::testing::Test {
 protected:
  std::shared_ptr<const ChatRenderer> renderer(const std::string& name) const {
    return std::make_shared<ChatRenderer>(load_chat_template(testing::template_path(name)), *tokenizer_);
  }

  testing::TemporaryFolder folder_;
  std::unique_ptr<Tokenizer> tokenizer_ = load_tokenizer(testing::write_chat_tokenizer(folder_.path()));
};

TEST_F(ChatDialogueTest, EncodesTurnsAsTrainingDid) {
  const auto chat = renderer("chatml");
  const DialogueEncoder encode = chat_dialogue(chat);
  EXPECT_EQ(encode({{"system", "s"}, {"user", "a"}, {"assistant", "b"}, {"user", "c"}}).ids,
            chat->prompt({{ChatRole::kSystem, "s"},
                          {ChatRole::kUser, "a"},
                          {ChatRole::kAssistant, "b"},
                          {ChatRole::kUser, "c"}}));
  EXPECT_THROW(encode({{"tool", "a"}}), DataError);
  EXPECT_THROW(encode({{"user", "a"}, {"assistant", "b"}}), DataError);
}

TEST_F(ChatDialogueTest, AnswersEndWhereTheTemplateEndsThem) {
  GenerationRequest request;
  request.stop_ids = {5};
  request.continues_text = true;
  answer_like_training(*renderer("llama3"), request);
  EXPECT_THAT(request.stop_ids, ElementsAre(5, testing::kEotId));
  EXPECT_EQ(request.routing, RoutingMode::kLastPromptToken);
  EXPECT_FALSE(request.continues_text);
}

TEST_F(ChatDialogueTest, TextThatATemplatePutsBeforeEosIsNoPartOfAnAnswer) {
  ChatTemplate chat = load_chat_template(testing::template_path("plain"));
  chat.assistant.end = "\n###\n";
  ASSERT_TRUE(chat.assistant.end_with_eos);
  GenerationRequest request;
  answer_like_training(ChatRenderer(chat, *tokenizer_), request);
  EXPECT_THAT(request.stop_ids, ElementsAre(testing::kEndOfText));
  EXPECT_TRUE(request.stops.empty()) << "an answer may hold the text";
  EXPECT_EQ(request.ending, "\n###\n");
}

// Generation and training must choose experts at the same tokens.
TEST_F(ChatDialogueTest, RoutesAnAnswerAsTrainingDid) {
  for (int64_t segment_length = 1; segment_length <= 12; ++segment_length) {
    const RowRouting routing{RoutingMode::kLastPromptToken, segment_length, 7};
    SegmentMap generated{1, 20, {}};
    append_segments(routing, 0, 0, 20, 20, generated);
    EXPECT_EQ(generated.segments, chat_segments({{{0, 20, {{7, 20}}}}}, 20, segment_length).segments)
        << segment_length;
  }
}

TEST_F(ChatDialogueTest, RoutesEveryTurnOfADialogueAsTrainingDid) {
  const auto chat = renderer("chatml");
  const Conversation whole = {{ChatRole::kSystem, "s"},
                              {ChatRole::kUser, "a question"},
                              {ChatRole::kAssistant, "b"},
                              {ChatRole::kUser, "c"},
                              {ChatRole::kAssistant, "a longer answer"}};
  const ChatExample trained = chat->render(whole);
  const DialoguePrompt prompt =
      chat_dialogue(chat)({{"system", "s"}, {"user", "a question"}, {"assistant", "b"}, {"user", "c"}});
  const int64_t num_inputs = trained.num_pairs();
  const auto begin = static_cast<int64_t>(prompt.ids.size());
  ASSERT_EQ(begin, trained.responses.back().begin);
  std::vector<ResponseSpan> responses = trained.responses;
  responses.back().end = num_inputs;
  for (int64_t segment_length = 1; segment_length <= 12; ++segment_length) {
    const RowRouting routing{RoutingMode::kLastPromptToken, segment_length, begin, prompt.responses};
    SegmentMap generated{1, num_inputs, {}};
    append_segments(routing, 0, 0, num_inputs, num_inputs, generated);
    EXPECT_EQ(generated.segments,
              chat_segments({{{0, num_inputs, responses}}}, num_inputs, segment_length).segments)
        << segment_length;
  }
}

}  // namespace
}  // namespace smoe
