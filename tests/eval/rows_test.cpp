#include "smoe/eval/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "eval/eval_test_support.h"
#include "smoe/core/error.h"
#include "smoe/eval/text_template.h"

namespace smoe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const Row kRow("data.jsonl", 7,
               {{"question", " Why? "}, {"number", 3}, {"choices", {{"text", {"a", "b"}}}}, {"ratio", 0.5}});

TEST(Rows, DottedPathsReachIntoObjects) {
  EXPECT_EQ(kRow.texts("choices.text"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(kRow.text("number"), "3");
}

TEST(Rows, AMissingFieldNamesFileLineFieldAndWhatThereIs) {
  EXPECT_THAT(error_text<DataError>([] { kRow.text("goal"); }),
              AllOf(HasSubstr("data.jsonl:7"), HasSubstr("`goal`"), HasSubstr("number, question")));
  EXPECT_THAT(error_text<DataError>([] { kRow.text("question.inner"); }), HasSubstr("`question.inner`"));
  EXPECT_THAT(error_text<DataError>([] { kRow.text("ratio"); }), HasSubstr("number"));
  EXPECT_THAT(error_text<DataError>([] { kRow.texts("question"); }), HasSubstr("expected a list"));
}

TEST(Rows, BrokenFilesAreRefusedWithTheirLine) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "x.jsonl";
  write_text(path, "{\"a\": 1}\n\n{\"a\": \n");
  EXPECT_THAT(error_text<DataError>([&] { read_rows(path, 0); }),
              AllOf(HasSubstr("x.jsonl:3"), HasSubstr("JSON")));
  write_text(path, "[1]\n");
  EXPECT_THAT(error_text<DataError>([&] { read_rows(path, 0); }), HasSubstr("array"));
  write_text(path, "\n");
  EXPECT_THAT(error_text<DataError>([&] { read_rows(path, 0); }), HasSubstr("no rows"));
  EXPECT_THAT(error_text<DataError>([&] { read_rows(folder.path() / "none.jsonl", 0); }),
              HasSubstr("none.jsonl"));
}

TEST(Rows, TheLimitTakesTheFirstRowsAndBlankLinesCountAsLines) {
  const TemporaryFolder folder;
  write_text(folder.path() / "x.jsonl", "{\"a\": 1}\n\n{\"a\": 2}\n{\"a\": 3}");
  const std::vector<Row> rows = read_rows(folder.path() / "x.jsonl", 2);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1].line(), 3);
  EXPECT_EQ(read_rows(folder.path() / "x.jsonl", 0).size(), 3u);
}

TEST(TextTemplate, FillsFieldsAppliesFiltersAndKeepsEscapedBraces) {
  EXPECT_EQ(TextTemplate("Q: {question|strip|capitalize} {{{number}}}\n", "t").render(kRow), "Q: Why? {3}\n");
  EXPECT_EQ(TextTemplate("", "t").render(kRow), "");
}

TEST(TextTemplate, MalformedTemplatesAreRefused) {
  EXPECT_THAT(error_text<ConfigError>([] { TextTemplate("{a", "task x"); }),
              AllOf(HasSubstr("task x"), HasSubstr("unbalanced")));
  EXPECT_THAT(error_text<ConfigError>([] { TextTemplate("a}", "t"); }), HasSubstr("unbalanced"));
  EXPECT_THAT(error_text<ConfigError>([] { TextTemplate("{}", "t"); }), HasSubstr("without a field"));
  EXPECT_THAT(error_text<ConfigError>([] { TextTemplate("{a|upper}", "t"); }),
              AllOf(HasSubstr("`upper`"), HasSubstr("strip_left")));
}

}  // namespace
}  // namespace smoe
