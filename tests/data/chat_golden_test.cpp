// The ids that transformers' apply_chat_template gives for the same dialogues (tests/golden/chat_templates).
#include <gtest/gtest.h>

#include "smoe/core/json.h"
#include "smoe/data/chat_renderer.h"

namespace smoe {
namespace {

Conversation conversation_of(const nlohmann::json& messages) {
  Conversation conversation;
  for (const nlohmann::json& message : messages) {
    conversation.push_back({enum_from_name<ChatRole>(message.at("role").get<std::string>()).value(),
                            message.at("content").get<std::string>()});
  }
  return conversation;
}

void expect_same_as_transformers(const std::string& name, const std::string& tokenizer_name) {
  const std::string root = SMOE_SOURCE_DIR;
  const auto tokenizer = load_tokenizer(root + "/tests/golden/tokenizers/" + tokenizer_name);
  const ChatRenderer renderer(load_chat_template(root + "/configs/chat_templates/" + name + ".yaml"),
                              *tokenizer);
  const nlohmann::json cases = read_json_file(root + "/tests/golden/chat_templates/expected.json").at(name);
  ASSERT_GE(cases.size(), 2U);
  for (const nlohmann::json& expected : cases) {
    Conversation messages = conversation_of(expected.at("messages"));
    const std::vector<int32_t> whole = expected.at("ids");
    const ChatExample example = renderer.render(messages);
    // What stands after the last answer is left out of training examples.
    ASSERT_LE(example.tokens.size(), whole.size());
    EXPECT_LE(whole.size() - example.tokens.size(), 1U);
    EXPECT_EQ(
        example.tokens,
        std::vector<int32_t>(whole.begin(), whole.begin() + static_cast<int64_t>(example.tokens.size())));
    messages.pop_back();
    EXPECT_EQ(renderer.prompt(messages), expected.at("prompt").get<std::vector<int32_t>>());
  }
}

TEST(ChatTemplateGolden, ChatMlIsThatOfTransformers) { expect_same_as_transformers("chatml", "qwen2"); }

TEST(ChatTemplateGolden, Llama3IsThatOfTransformers) { expect_same_as_transformers("llama3", "llama3"); }

}  // namespace
}  // namespace smoe
