#include "smoe/data/chat_message.h"

#include "chat_test_support.h"
#include "data_test_support.h"

namespace smoe {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

DocumentRecord record_of(const std::string& line, int64_t number = 7) {
  return {line, std::make_shared<const std::string>("chats.jsonl"), number};
}

std::string refusal(const std::string& line) {
  return test::error_of([&] { parse_conversation(record_of(line)); });
}

TEST(ParseConversation, ReadsSystemAndTurns) {
  const Conversation messages =
      parse_conversation(record_of(testing::chat_line({"Hi", "Hello"}, "Be kind.")));
  EXPECT_THAT(messages,
              ElementsAre(ChatMessage{ChatRole::kSystem, "Be kind."}, ChatMessage{ChatRole::kUser, "Hi"},
                          ChatMessage{ChatRole::kAssistant, "Hello"}));
}

TEST(ParseConversation, IgnoresOtherKeysOfTheLineButNotOfAMessage) {
  const std::string good =
      R"({"source": "x", "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})";
  EXPECT_EQ(parse_conversation(record_of(good)).size(), 2U);
  const std::string bad =
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "tool_calls": []}]})";
  EXPECT_THAT(refusal(bad),
              AllOf(HasSubstr("chats.jsonl:7: messages[1].tool_calls"), HasSubstr("role and content")));
}

TEST(ParseConversation, NamesPlaceAndKeyOfWhatIsWrong) {
  EXPECT_THAT(refusal(R"({"text": "a"})"),
              HasSubstr("chats.jsonl:7: messages: the key is missing (found: text)"));
  EXPECT_THAT(refusal(R"({"messages": "a"})"),
              HasSubstr("chats.jsonl:7: messages: a JSON string instead of a list"));
  EXPECT_THAT(refusal(R"({"messages": []})"), HasSubstr("the role assistant"));
  EXPECT_THAT(refusal(R"({"messages": ["a"]})"), HasSubstr("messages[0]: a JSON string"));
  EXPECT_THAT(refusal(R"({"messages": [{"role": "tool", "content": "a"}]})"),
              AllOf(HasSubstr("messages[0].role: found \"tool\""), HasSubstr("system, user and assistant")));
  EXPECT_THAT(refusal(R"({"messages": [{"role": "user"}]})"),
              HasSubstr("messages[0]: the key \"content\" is missing"));
  EXPECT_THAT(refusal(R"({"messages": [{"role": "user", "content": [1]}]})"),
              HasSubstr("messages[0].content: a JSON array instead of a string"));
  EXPECT_THAT(refusal("{"), HasSubstr("chats.jsonl:7:2: not valid JSON"));
  EXPECT_THAT(refusal("[1]"), HasSubstr("chats.jsonl:7: a JSON array"));
  EXPECT_THAT(test::error_of([] { parse_conversation(record_of("plain text", 0)); }),
              HasSubstr("JSON lines"));
}

TEST(ParseConversation, RefusesTurnsOutOfOrder) {
  EXPECT_THAT(refusal(testing::chat_line({"a"})), HasSubstr("messages: the last of the 1 messages"));
  const std::string twice =
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]})";
  EXPECT_THAT(refusal(twice), HasSubstr("messages[1].role: found user where assistant is expected"));
  const std::string late =
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}]})";
  EXPECT_THAT(refusal(late), HasSubstr("messages[1].role: found system"));
}

TEST(CheckOpenDialogue, WantsAUserMessageLast) {
  EXPECT_NO_THROW(check_open_dialogue({{ChatRole::kUser, "a"}}, "chat"));
  EXPECT_THAT(test::error_of([] {
                check_open_dialogue({{ChatRole::kUser, "a"}, {ChatRole::kAssistant, "b"}}, "chat");
              }),
              HasSubstr("chat: messages: the last of the 2 messages must be of the role user"));
  EXPECT_THAT(test::error_of([] {
                check_open_dialogue({{ChatRole::kSystem, "a"}}, "chat");
              }),
              HasSubstr("must be of the role user"));
}

}  // namespace
}  // namespace smoe
