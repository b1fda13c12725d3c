#include "smoe/infer/prompts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "infer/infer_test_support.h"
#include "smoe/core/error.h"
#include "temporary_folder.h"

namespace smoe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Prompts : public ::testing::Test {
 protected:
  std::filesystem::path write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    return folder_ / name;
  }
  std::string error_of(const std::filesystem::path& file) {
    try {
      read_prompts(file);
    } catch (const DataError& error) {
      return error.what();
    }
    return "no error";
  }
  testing::TemporaryFolder folder_;
};

TEST_F(Prompts, TextFilesHoldOneALine) {
  EXPECT_THAT(read_prompts(write("a.txt", "one two\r\n\n  three\n")), ElementsAre("one two", "  three"));
}

TEST_F(Prompts, JsonLinesHoldTheFieldPrompt) {
  EXPECT_THAT(read_prompts(write("a.jsonl", "{\"prompt\": \"a\\nb\"}\n{\"id\": 1, \"prompt\": \"c\"}\n")),
              ElementsAre("a\nb", "c"));
}

TEST_F(Prompts, ErrorsNameFileAndLine) {
  EXPECT_THAT(error_of(write("a.jsonl", "{\"prompt\": \"a\"}\n{\"text\": \"b\"}\n")),
              AllOf(HasSubstr("a.jsonl:2"), HasSubstr("`prompt`")));
  EXPECT_THAT(error_of(write("b.jsonl", "{\"prompt\"\n")), HasSubstr("b.jsonl:1"));
  EXPECT_THAT(error_of(write("c.txt", "\n\n")), HasSubstr("no prompts"));
  EXPECT_THAT(error_of(folder_ / "absent.txt"), HasSubstr("absent.txt"));
}

TEST_F(Prompts, TextThatIsNotUtf8IsNamedWithItsPlace) {
  EXPECT_THAT(error_of(write("a.txt", "one\ncaf\xE9\n")),
              AllOf(HasSubstr("a.txt:2"), HasSubstr("byte 4 (0xE9)"), HasSubstr("convert")));
  EXPECT_THAT(error_of(write("a.jsonl", "{\"prompt\": \"\xFF\"}\n")),
              AllOf(HasSubstr("a.jsonl:1"), HasSubstr("0xFF")));
}

TEST_F(Prompts, TheBosPolicyDecidesTheFirstToken) {
  testing::PieceTokenizer tokenizer({"", "", "a", "b"});
  tokenizer.bos = 0;
  tokenizer.eos = 1;
  EXPECT_THAT(encode_prompt(tokenizer, "ab", BosPolicy::kAuto), ElementsAre(0, 2, 3));
  EXPECT_THAT(encode_prompt(tokenizer, "ab", BosPolicy::kEos), ElementsAre(1, 2, 3));
  EXPECT_THAT(encode_prompt(tokenizer, "", BosPolicy::kAuto), ElementsAre(0));
  tokenizer.bos.reset();
  EXPECT_THAT(encode_prompt(tokenizer, "ab", BosPolicy::kAuto), ElementsAre(2, 3));
  EXPECT_THROW(encode_prompt(tokenizer, "ab", BosPolicy::kAlways), ConfigError);
  EXPECT_THAT(
      plain_dialogue(tokenizer, BosPolicy::kNever)({{"user", "a"}, {"assistant", "b"}, {"user", "a"}}).ids,
      ElementsAre(2, 3, 2));
}

}  // namespace
}  // namespace smoe
