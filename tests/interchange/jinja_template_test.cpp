// The Jinja text of our chat templates. tests/golden/interchange/check_export.py renders it with
// transformers.
#include "smoe/interchange/jinja_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "interchange/interchange_test_support.h"

namespace smoe {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ChatTemplate load(const std::string& name) {
  return load_chat_template(std::filesystem::path(SMOE_SOURCE_DIR) / "configs/chat_templates" / name);
}

TEST(JinjaTemplate, EveryTemplateOfTheConfigsReadsBack) {
  for (const char* name : {"chatml.yaml", "llama3.yaml", "plain.yaml"}) {
    const ChatTemplate chat = load(name);
    const std::optional<ChatTemplate> back = from_jinja(to_jinja(chat));
    ASSERT_TRUE(back.has_value()) << name;
    EXPECT_EQ(dump_config(*back), dump_config(chat)) << name;
  }
}

TEST(JinjaTemplate, PiecesBecomeEscapedLiterals) {
  ChatTemplate chat = load("chatml.yaml");
  chat.user.prefix = "it's\\\n\t\"";
  EXPECT_THAT(to_jinja(chat), HasSubstr(R"('it\'s\\\n\t"' + message['content'] + '<|im_end|>\n')"));
}

TEST(JinjaTemplate, EditedOrForeignJinjaIsNotTakenForOurs) {
  std::string jinja = to_jinja(load("chatml.yaml"));
  EXPECT_FALSE(from_jinja(jinja + " ").has_value());
  jinja.replace(jinja.rfind("assistant"), 9, "model");
  EXPECT_FALSE(from_jinja(jinja).has_value());
  EXPECT_FALSE(from_jinja("{{ messages }}").has_value());
  EXPECT_FALSE(from_jinja("{#- smoe chat template\nname: [-#}").has_value());
  EXPECT_FALSE(from_jinja("{#- smoe chat template\n").has_value());
}

TEST(JinjaTemplate, TemplateThatSpellsTheEndOfACommentHasNone) {
  ChatTemplate chat = load("plain.yaml");
  chat.system.suffix = "#}";
  EXPECT_THAT(to_jinja(chat), Not(HasSubstr("{#")));
  EXPECT_FALSE(from_jinja(to_jinja(chat)).has_value());
}

}  // namespace
}  // namespace smoe
