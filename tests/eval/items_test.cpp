#include "smoe/eval/items.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "eval/eval_test_support.h"
#include "smoe/core/error.h"
#include "smoe/eval/python_random.h"

namespace smoe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A data folder with one small file a task.
class Items : public ::testing::Test {
 protected:
  std::vector<EvaluationItem> build(const std::string& task, int64_t shots = 0, int64_t limit = 0) {
    return build_items(shipped_task(task), {folder_.path(), limit, shots, 1234});
  }
  void write(const std::string& file, const std::string& text) { write_text(folder_.path() / file, text); }
  // Rows {"goal": "g0", ...} for PIQA.
  static std::string piqa_rows(int begin, int end) {
    std::string rows;
    for (int i = begin; i < end; ++i) {
      rows +=
          fmt::format("{{\"goal\": \"g{}\", \"sol1\": \"l\", \"sol2\": \"r\", \"label\": {}}}\n", i, i % 2);
    }
    return rows;
  }
  TemporaryFolder folder_;
};

TEST_F(Items, WinoGrandeScoresTheSameRestUnderEachOption) {
  write("winogrande/validation.jsonl",
        R"({"sentence": "Ann met Bo as _ was late . ", "option1": "Ann", "option2": "Bo", "answer": "2"})");
  const EvaluationItem item = build("winogrande").at(0);
  ASSERT_EQ(item.pairs.size(), 2u);
  EXPECT_EQ(item.pairs[0].context, "Ann met Bo as Ann");
  EXPECT_EQ(item.pairs[1].context, "Ann met Bo as Bo");
  EXPECT_EQ(item.pairs[0].continuation, " was late .");
  EXPECT_EQ(item.pairs[1].continuation, " was late .");
  EXPECT_EQ(item.gold, 1);
}

TEST_F(Items, WinoGrandeShotsAreWholeSentencesWithTheRightOption) {
  write("winogrande/validation.jsonl",
        R"({"sentence": "A _ b", "option1": "x", "option2": "y", "answer": "1"})");
  write("winogrande/train_xl.jsonl", R"({"sentence": "C _ d.", "option1": "x", "option2": "y", "answer": "2"}
{"sentence": "A _ b", "option1": "x", "option2": "y", "answer": "1"})");
  // Two rows are drawn because neither split is named; the evaluated row is among them and leaves.
  EXPECT_EQ(build("winogrande", 1).at(0).pairs[0].context, "C y d.\n\nA x");
}

TEST_F(Items, ABlankLessSentenceIsRefused) {
  write("winogrande/validation.jsonl",
        R"({"sentence": "A b", "option1": "x", "option2": "y", "answer": "1"})");
  EXPECT_THAT(error_text<DataError>([&] { build("winogrande"); }),
              AllOf(HasSubstr("validation.jsonl:1"), HasSubstr("no blank")));
}

TEST_F(Items, LambadaSplitsAtTheLastSpace) {
  write("lambada_openai/test.jsonl", "{\"text\": \"he said\\n\\nto  me\"}\n{\"text\": \"word\"}\n");
  const auto items = build("lambada_openai");
  EXPECT_EQ(items[0].pairs[0].context, "he said\n\nto ");
  EXPECT_EQ(items[0].pairs[0].continuation, " me");
  EXPECT_EQ(items[1].pairs[0].context, "");
  EXPECT_EQ(items[1].pairs[0].continuation, " word");
}

TEST_F(Items, HellaSwagTextsAreCleaned) {
  write("hellaswag/validation.jsonl",
        R"({"activity_label": "Cook", "ctx_a": "Take it. [header] Wash", "ctx_b": "tHE pan",)"
        R"( "endings": [" is [x] hot ", "b", "c", "d"], "label": "0"})");
  const EvaluationItem item = build("hellaswag").at(0);
  EXPECT_EQ(item.pairs[0].context, "Cook: Take it. Wash The pan");
  EXPECT_EQ(item.pairs[0].continuation, " is hot");
}

TEST_F(Items, ArcMatchesTheAnswerAgainstTheRowsOwnLabels) {
  write(
      "arc_easy/test.jsonl",
      R"({"question": "q", "choices": {"text": ["x", "y", "z"], "label": ["1", "2", "3"]}, "answerKey": "3"})");
  EXPECT_EQ(build("arc_easy").at(0).gold, 2);
  write("arc_easy/test.jsonl",
        R"({"question": "q", "choices": {"text": ["x"], "label": ["A"]}, "answerKey": "E"})");
  EXPECT_THAT(error_text<DataError>([&] { build("arc_easy"); }),
              AllOf(HasSubstr("`E`"), HasSubstr("test.jsonl:1")));
}

TEST_F(Items, ShotsAreCPythonsDrawsFromOneGeneratorOverTheRows) {
  write("piqa/validation.jsonl", piqa_rows(100, 103));
  write("piqa/train.jsonl", piqa_rows(0, 40));
  const auto items = build("piqa", 2);
  PythonRandom random(1234);
  for (const EvaluationItem& item : items) {
    std::vector<int64_t> drawn = random.sample(40, 3);  // one more than needed: both split names are unset
    drawn.pop_back();
    EXPECT_EQ(item.shots, drawn);
  }
  EXPECT_EQ(items[0].pairs[0].context.find("Question: g" + std::to_string(items[0].shots[0])), 0u);
  // A limit shortens the list and changes nothing else.
  EXPECT_EQ(build("piqa", 2, 2).at(1).shots, items[1].shots);
}

TEST_F(Items, DuplicatesOfTheEvaluatedRowNeverBecomeShots) {
  write("piqa/validation.jsonl", piqa_rows(0, 1));
  write("piqa/train.jsonl", piqa_rows(0, 1) + piqa_rows(0, 1) + piqa_rows(0, 1) + piqa_rows(1, 2));
  EXPECT_EQ(build("piqa", 1).at(0).shots, std::vector<int64_t>{3});
}

TEST_F(Items, FirstNTakesTheFirstRowsInOrder) {
  write("piqa/validation.jsonl", piqa_rows(1, 3));
  write("piqa/train.jsonl", piqa_rows(0, 5));
  TaskConfig task = shipped_task("piqa");
  task.few_shot.sampler = ShotSampler::kFirstN;
  const auto items = build_items(task, {folder_.path(), 0, 2, 1234});
  EXPECT_EQ(items[0].shots, (std::vector<int64_t>{0, 2}));  // row 1 is the evaluated one
  EXPECT_EQ(items[1].shots, (std::vector<int64_t>{0, 1}));
}

TEST_F(Items, TooFewRowsForTheShotsAndMissingFilesAreRefused) {
  write("piqa/validation.jsonl", piqa_rows(0, 1));
  write("piqa/train.jsonl", piqa_rows(0, 2));
  EXPECT_THAT(error_text<DataError>([&] { build("piqa", 2); }),
              AllOf(HasSubstr("3 rows"), HasSubstr("holds 2")));
  EXPECT_THAT(error_text<DataError>([&] { build("arc_easy"); }),
              AllOf(HasSubstr("arc_easy/test.jsonl"), HasSubstr("--data")));
}

}  // namespace
}  // namespace smoe
