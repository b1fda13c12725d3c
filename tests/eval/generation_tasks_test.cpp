// Tasks that generate, from their files to scores: kinds, failures, continuing after a kill.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "eval/eval_test_support.h"
#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/eval/evaluator.h"
#include "smoe/eval/response_scores.h"

namespace smoe {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

RowAnswers answers(const std::vector<std::string>& texts) {
  RowAnswers row;
  for (const std::string& text : texts) row.push_back({text, FinishReason::kStop, 1});
  return row;
}

class GenerationTasks : public ::testing::Test {
 protected:
  void SetUp() override {
    write_text(folder_.path() / "qa.jsonl",
               "{\"q\": \"one\", \"a\": [\"1\", \"I\"]}\n{\"q\": \"two\", \"a\": [\"2\"]}\n"
               "{\"q\": \"three\", \"a\": [\"3\"]}\n");
  }
  TaskConfig question_task() const {
    TaskConfig task;
    task.name = "qa";
    task.kind = TaskKind::kGenerate;
    task.test_file = "qa.jsonl";
    task.row.prompt = "{q} is";
    task.row.targets_field = "a";
    task.generation.max_new_tokens = 6;
    task.answers = {{"", AnswerReading::kStrip, {}}};
    task.primary = "exact_match";
    return task;
  }
  EvaluationOptions options() const {
    EvaluationOptions options;
    options.tasks = {question_task()};
    options.data_folder = folder_.path();
    return options;
  }
  TemporaryFolder folder_;
  ByteTokenizer tokenizer_;
  Model model_ = make_model(tiny_stepped_config());
};

TEST_F(GenerationTasks, AnyReferenceIsRightAndShotsShowTheFirst) {
  const TaskConfig task = question_task();
  const auto items = build_items(task, {folder_.path(), 0, 1, 1234});
  ASSERT_EQ(items.size(), 3u);
  EXPECT_THAT(items[0].references, ElementsAre("1", "I"));
  for (size_t i = 1; i < items.size(); ++i) {
    const std::string shot = items[i].shots[0] == 0 ? "one is 1\n\n" : "is";
    EXPECT_THAT(items[i].pairs[0].context, HasSubstr(shot));
  }
  const BudgetScores scores =
      ResponseScorer(task, nullptr).score(items, {answers({" I "}), answers({"two"}), answers({"3"})});
  EXPECT_THAT(scores.series[0].values, ElementsAre(1.0, 0.0, 1.0));
  EXPECT_EQ(scores.samples[0]["answers"]["exact_match"]["answer"], "I");
}

TEST_F(GenerationTasks, EveryBudgetIsDecodedAndLoggedWithItsMetricValues) {
  EvaluationOptions run = options();
  run.samples = folder_.path() / "samples";
  const EvaluationResults results = evaluate(model_, tokenizer_, run);
  ASSERT_TRUE(results.is_complete());
  const TaskResult& task = results.tasks.at(0);
  EXPECT_EQ(task.primary_result().budgets.size(), 3u);
  EXPECT_EQ(task.generation->answers, 9);
  EXPECT_EQ(task.generation->max_new_tokens, 6);
  const auto line = read_rows(folder_.path() / "samples/qa.jsonl", 0).at(1).value();
  for (const char* budget : {"small", "medium", "large"}) {
    EXPECT_EQ(line["budgets"][budget]["texts"].size(), 1u);
    EXPECT_TRUE(line["budgets"][budget]["metrics"].contains("exact_match"));
  }
  EXPECT_EQ(line["references"][0], "2");
}

TEST_F(GenerationTasks, AnswersDoNotDependOnHowManyAreDecodedAtATime) {
  EvaluationOptions one = options();
  one.batch_tokens = 1;
  one.samples = folder_.path() / "one";
  EvaluationOptions many = options();
  many.samples = folder_.path() / "many";
  evaluate(model_, tokenizer_, one);
  evaluate(model_, tokenizer_, many);
  const auto left = read_rows(folder_.path() / "one/qa.jsonl", 0);
  const auto right = read_rows(folder_.path() / "many/qa.jsonl", 0);
  for (size_t i = 0; i < left.size(); ++i) {
    EXPECT_EQ(left[i].value()["budgets"], right[i].value()["budgets"]);
  }
}

TEST_F(GenerationTasks, AnswersLongerThanTheModelAreAFailureWithTheRemedy) {
  EvaluationOptions run = options();
  run.max_length = 6;
  const EvaluationResults results = evaluate(model_, tokenizer_, run);
  ASSERT_EQ(results.failures.size(), 1u);
  EXPECT_THAT(results.failures[0].message, HasSubstr("--max-new-tokens"));
  run.max_new_tokens = 2;
  const EvaluationResults shorter = evaluate(model_, tokenizer_, run);
  EXPECT_TRUE(shorter.is_complete());
  EXPECT_THAT(to_terminal_table(shorter), HasSubstr("TRUNCATED: qa: 3 contexts do not fit into 6 tokens"));
  EXPECT_THAT(to_terminal_table(evaluate(model_, tokenizer_, options())),
              ::testing::Not(HasSubstr("TRUNCATED")));
}

TEST_F(GenerationTasks, AChatTemplateMakesThePromptAMessage) {
  EvaluationOptions run = options();
  run.chat_template = load_chat_template(source_folder() / "configs/chat_templates/plain.yaml");
  run.routing = RoutingMode::kLastPromptToken;
  run.samples = folder_.path() / "samples";
  run.log_token_ids = true;
  const EvaluationResults results = evaluate(model_, tokenizer_, run);
  ASSERT_TRUE(results.is_complete()) << results.failures.front().message;
  EXPECT_EQ(to_json(results)["context"]["chat_template"], "plain");
  std::vector<int32_t> expected = {1};
  for (const int32_t id : byte_ids("User:\none is\nAssistant:\n")) expected.push_back(id);
  const auto line = read_rows(folder_.path() / "samples/qa.jsonl", 0).at(0).value();
  EXPECT_EQ(line["token_ids"]["prompt"], nlohmann::json(expected));
}

TEST_F(GenerationTasks, ATaskWithoutDataDoesNotStopTheOthers) {
  EvaluationOptions run = options();
  TaskConfig missing = question_task();
  missing.name = "missing";
  missing.test_file = "nowhere.jsonl";
  run.tasks.insert(run.tasks.begin(), missing);
  run.groups = {{"both", "Both", {"missing", "qa"}}};
  const EvaluationResults results = evaluate(model_, tokenizer_, run);
  EXPECT_EQ(results.tasks.size(), 1u);
  ASSERT_EQ(results.failures.size(), 2u);
  EXPECT_EQ(results.failures[0].name, "missing");
  EXPECT_THAT(results.failures[0].message, HasSubstr("nowhere.jsonl"));
  EXPECT_EQ(results.failures[1].name, "both");
  EXPECT_TRUE(results.groups.empty());
  EXPECT_THAT(to_terminal_table(results), HasSubstr("NOT SCORED: missing"));
  EXPECT_EQ(to_json(results)["complete"], false);
}

TEST_F(GenerationTasks, AKilledRunContinuesFromItsJournal) {
  EvaluationOptions run = options();
  run.journal = folder_.path() / "journal";
  run.samples = folder_.path() / "samples";
  TaskConfig missing = question_task();
  missing.name = "missing";
  missing.test_file = "nowhere.jsonl";
  run.tasks.push_back(missing);  // so that the run is incomplete and keeps its journal
  evaluate(model_, tokenizer_, run);
  const std::filesystem::path file = run.journal / "qa.jsonl";
  std::string text = read_file(file);
  // One answer is replaced, so that its origin can be seen; the last line is torn, as by a kill.
  const size_t key = text.find("\"answer 1 0 0\"");
  const size_t value = text.find("[\"", key);
  ASSERT_NE(value, std::string::npos);
  text.replace(value, 2, "[\"from the journal ");
  text.resize(text.size() - 5);
  write_text(file, text);

  evaluate(model_, tokenizer_, run);
  const auto line = read_rows(folder_.path() / "samples/qa.jsonl", 0).at(0).value();
  EXPECT_THAT(line["budgets"]["medium"]["texts"][0].get<std::string>(), HasSubstr("from the journal"));

  run.seed = 99;  // another run: nothing is taken over
  evaluate(model_, tokenizer_, run);
  EXPECT_THAT(read_file(file), ::testing::Not(HasSubstr("from the journal")));
  run.tasks.pop_back();
  ASSERT_TRUE(evaluate(model_, tokenizer_, run).is_complete());
  EXPECT_TRUE(std::filesystem::exists(file)) << "the results are not on disk yet";
}

TEST_F(GenerationTasks, AJournalIsNotContinuedWithOtherShots) {
  const auto write_shots = [&](const std::string& answer) {
    write_text(folder_.path() / "shots.jsonl",
               "{\"q\": \"zero\", \"a\": [\"" + answer + "\"]}\n{\"q\": \"nine\", \"a\": [\"9\"]}\n");
  };
  EvaluationOptions run = options();
  run.tasks[0].train_file = "shots.jsonl";
  run.num_shots = 2;
  run.journal = folder_.path() / "journal";
  write_shots("0");
  evaluate(model_, tokenizer_, run);
  const std::filesystem::path file = run.journal / "qa.jsonl";
  std::string text = read_file(file);
  const size_t value = text.find("[\"", text.find("\"answer 1 0 0\""));
  text.replace(value, 2, "[\"from the journal ");
  write_text(file, text);

  evaluate(model_, tokenizer_, run);
  EXPECT_THAT(read_file(file), HasSubstr("from the journal"));
  write_shots("nought");
  evaluate(model_, tokenizer_, run);
  EXPECT_THAT(read_file(file), ::testing::Not(HasSubstr("from the journal")));
}

TEST_F(GenerationTasks, ProgramsAreRunAndCountedByPassAtK) {
  write_text(
      folder_.path() / "code.jsonl",
      R"({"prompt": "def f(x):\n", "entry_point": "f", "test": "def check(f):\n    assert f(2) == 4\n"})");
  TaskConfig task;
  task.name = "code";
  task.kind = TaskKind::kCode;
  task.test_file = "code.jsonl";
  task.row.prompt = "{prompt}";
  task.generation.samples = 2;
  task.code.pass_at = {1, 2};
  task.primary = "pass@1";
  std::unique_ptr<CodeRunner> runner;
  try {
    const CodeRunnerOptions defaults;
    runner = std::make_unique<CodeRunner>(defaults);
  } catch (const ConfigError& error) {
    GTEST_SKIP() << error.what();
  }
  const auto items = build_items(task, {folder_.path(), 0, 0, 1234});
  const ResponseScorer scorer(task, runner.get());
  scorer.check(items);
  const BudgetScores scores = scorer.score(items, {answers({"    return 2 * x\n", "    return x\n"})});
  EXPECT_THAT(scores.series[0].values, ElementsAre(0.5));
  EXPECT_THAT(scores.series[1].values, ElementsAre(1.0));
  EXPECT_EQ(scores.samples[0]["verdicts"], (nlohmann::json{"passed", "failed"}));
}

TEST_F(GenerationTasks, InstructionsAreCheckedStrictlyAndLoosely) {
  write_text(
      folder_.path() / "ifeval.jsonl",
      R"({"key": 1, "prompt": "Write.", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]})");
  TaskConfig task = shipped_task("ifeval");
  task.test_file = "ifeval.jsonl";
  const auto items = build_items(task, {folder_.path(), 0, 0, 1234});
  const ResponseScorer scorer(task, nullptr);
  const BudgetScores scores = scorer.score(items, {answers({"Well, yes\nno comma here"})});
  const auto names = metric_names(task);
  ASSERT_EQ(names[0], "prompt_level_strict_acc");
  EXPECT_EQ(scores.series[0].values[0], 0.0);
  ASSERT_EQ(names[2], "prompt_level_loose_acc");
  EXPECT_EQ(scores.series[2].values[0], 1.0) << "without its first line the answer has no comma";
}

TEST_F(GenerationTasks, MathAnswersAreReadAndNormalised) {
  write_text(folder_.path() / "math.jsonl", R"({"problem": "p", "solution": "so \\boxed{\\frac{1}{2}}"})");
  TaskConfig task = shipped_task("minerva_math");
  task.test_file = "math.jsonl";
  const auto items = build_items(task, {folder_.path(), 0, 0, 1234});
  const ResponseScorer scorer(task, nullptr);
  const auto value = [&](const std::string& text) {
    return scorer.score(items, {answers({text})}).series[0].values[0];
  };
  EXPECT_EQ(value("Final Answer: The final answer is $\\frac12$. I hope it is correct."), 1.0);
  EXPECT_EQ(value("Final Answer: The final answer is $2$. I hope it is correct."), 0.0);
  EXPECT_EQ(value("It is a half."), 0.0);
}

TEST_F(GenerationTasks, RowsAreChosenByRangeAndShotsBySharedField) {
  write_text(folder_.path() / "rows.jsonl",
             "{\"q\": \"a\", \"a\": [\"1\"], \"id\": 1, \"s\": \"x\"}\n"
             "{\"q\": \"b\", \"a\": [\"2\"], \"id\": 2, \"s\": \"y\"}\n"
             "{\"q\": \"c\", \"a\": [\"3\"], \"id\": 3, \"s\": \"y\"}\n");
  TaskConfig task = question_task();
  task.test_file = "rows.jsonl";
  task.train_file = "rows.jsonl";
  task.rows = {"id", 2, 3};
  task.few_shot.same_field = "s";
  task.few_shot.sampler = ShotSampler::kFirstN;
  task.description = "About {s}. ";
  const auto items = build_items(task, {folder_.path(), 1, 1, 1234});
  ASSERT_EQ(items.size(), 1u);
  EXPECT_EQ(items[0].pairs[0].context, "About y. b is 2\n\nb is");
  task.rows = {"id", 7, 9};
  EXPECT_THAT(error_text<DataError>([&] {
                build_items(task, {folder_.path(), 0, 0, 1234});
              }),
              HasSubstr("id from 7 to 9"));
}

TEST(GenerationTaskFiles, MistakesAreRefusedWithTheReason) {
  const TemporaryFolder folder;
  const auto error = [&](const std::string& lines) {
    write_text(folder.path() / "tasks/x.yaml", "name: x\ntest_file: a\n" + lines);
    return error_text<ConfigError>([&] { TaskLibrary(folder.path()).task("x"); });
  };
  EXPECT_THAT(error("kind: generate\nrow: {prompt: '{q}'}\nprimary: acc\n"),
              AllOf(HasSubstr("row.target"), HasSubstr("answers"), HasSubstr("primary")));
  EXPECT_THAT(error("kind: generate\nrow: {prompt: '{q}', target: '{a}'}\nprimary: exact_match\n"
                    "answers: [{reading: regex, regex: {pattern: '(('}}]\n"),
              HasSubstr("answers"));
  EXPECT_THAT(error("kind: code\nrow: {prompt: '{q}'}\ncode: {pass_at: [1, 5]}\nprimary: pass@1\n"),
              AllOf(HasSubstr("pass@5"), HasSubstr("samples")));
  EXPECT_THAT(error("kind: instruction\nrow: {prompt: '{q}'}\nmetrics: [acc]\nprimary: acc\n"),
              HasSubstr("prompt_level_strict_acc"));
}

TEST(GenerationTaskFiles, TheGroupsOfThePaperHoldTheirRows) {
  const TaskLibrary library(source_folder() / "configs/eval");
  const auto names = [&](const std::string& group) {
    std::set<std::string> found;
    for (const TaskConfig& task : library.select({group}).tasks) found.insert(task.name);
    return found;
  };
  EXPECT_EQ(names("paper_pretrain").size(), 12u);
  EXPECT_EQ(
      names("paper_sft"),
      (std::set<std::string>{"ifeval", "alpaca_eval_2", "arena_hard", "mmau_tool_execution", "minerva_math",
                             "gsm8k_cot", "mbpp", "humaneval", "multipl_e_java", "multipl_e_swift"}));
}

}  // namespace
}  // namespace smoe
