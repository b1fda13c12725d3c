// What a run sets for all its tasks: samples, chat layouts, subgroups, files for judges, names that do not
// exist.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "eval/eval_test_support.h"
#include "smoe/core/error.h"
#include "smoe/core/json.h"
#include "smoe/eval/evaluator.h"
#include "smoe/eval/generation_overrides.h"
#include "smoe/eval/model_outputs.h"
#include "smoe/eval/request_batch.h"
#include "smoe/eval/response_scores.h"
#include "smoe/routing/chat_segments.h"

namespace smoe {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ChatTemplate plain_template() {
  return load_chat_template(source_folder() / "configs/chat_templates/plain.yaml");
}

class SuiteOptions : public ::testing::Test {
 protected:
  EvaluationOptions options(const TaskConfig& task) const {
    EvaluationOptions options;
    options.tasks = {task};
    options.data_folder = folder_.path();
    options.samples = folder_.path() / "samples";
    options.log_token_ids = true;
    return options;
  }
  TaskConfig question_task() {
    write_text(folder_.path() / "qa.jsonl",
               "{\"q\": \"one\", \"a\": \"1\"}\n{\"q\": \"two\", \"a\": \"2\"}\n");
    TaskConfig task;
    task.name = "qa";
    task.kind = TaskKind::kGenerate;
    task.test_file = "qa.jsonl";
    task.row.prompt = "{q} is";
    task.row.target = "{a}";
    task.generation.max_new_tokens = 5;
    task.answers = {{"", AnswerReading::kStrip, {}}};
    task.primary = "exact_match";
    return task;
  }
  TaskConfig choice_task() {
    write_text(folder_.path() / "choice.jsonl",
               "{\"q\": \"Q one\", \"c\": [\" yes\", \"no\"], \"g\": 0, \"s\": \"x\"}\n"
               "{\"q\": \"Q two\", \"c\": [\"yes\", \"no\"], \"g\": 1, \"s\": \"y\"}\n"
               "{\"q\": \"Q three\", \"c\": [\"yes\", \"no\"], \"g\": 1, \"s\": \"z\"}\n");
    TaskConfig task;
    task.name = "choice";
    task.test_file = task.train_file = "choice.jsonl";
    task.description = "Choose.";
    task.row.prompt = "{q}?";
    task.row.choices_field = "c";
    task.row.gold.field = "g";
    task.metrics = {Metric::kAccuracy, Metric::kGoldBitsPerByte};
    task.few_shot.sampler = ShotSampler::kFirstN;
    return task;
  }

  TemporaryFolder folder_;
  ByteTokenizer tokenizer_;
  Model model_ = make_model(tiny_stepped_config());
};

TEST_F(SuiteOptions, AScoreIsTheMeanOverTheSamplesOfARow) {
  TaskConfig task = question_task();
  override_generation({.samples = 4, .temperature = 0.7}, task);
  const auto items = build_items(task, {folder_.path(), 0, 0, 1234});
  const auto row = [](const std::vector<std::string>& texts) {
    RowAnswers answers;
    for (const std::string& text : texts) answers.push_back({text, FinishReason::kStop, 1});
    return answers;
  };
  const BudgetScores scores =
      ResponseScorer(task, nullptr).score(items, {row({"1", "1", "x", "1"}), row({"x", "2", "x", "x"})});
  EXPECT_THAT(scores.series[0].values, ElementsAre(0.75, 0.25));
  EXPECT_THAT(scores.series[0].weights, ElementsAre(1.0, 1.0));
  EXPECT_EQ(scores.samples[1]["samples"][1]["answers"]["exact_match"]["correct"], true);
  EXPECT_EQ(scores.samples[1]["texts"].size(), 4u);
}

TEST_F(SuiteOptions, SamplingIsRecordedAndRepeatsWithItsSeed) {
  TaskConfig task = question_task();
  override_generation({.samples = 3, .temperature = 1.0, .top_p = 0.9}, task);
  const auto texts = [&](uint64_t seed) {
    EvaluationOptions run = options(task);
    run.seed = seed;
    const nlohmann::ordered_json json = to_json(evaluate(model_, tokenizer_, run));
    const auto& generation = json["tasks"]["qa"]["generation"];
    EXPECT_EQ(generation["samples"], 3);
    EXPECT_EQ(generation["temperature"], 1.0);
    EXPECT_EQ(generation["top_p"], 0.9);
    EXPECT_EQ(generation["seed"], seed);
    EXPECT_EQ(generation["answers"], 2 * 3 * 3);
    return read_rows(folder_.path() / "samples/qa.jsonl", 0).at(0).value()["budgets"]["large"]["texts"];
  };
  const auto first = texts(7);
  EXPECT_EQ(texts(7), first);
  EXPECT_NE(texts(8), first);
  EXPECT_NE(first[0], first[1]);
}

TEST_F(SuiteOptions, PassAtKeepsTheKsThatHaveSamplesEnough) {
  TaskConfig task = shipped_task("humaneval_64");
  override_generation({.samples = 16}, task);
  EXPECT_THAT(task.code.pass_at, ElementsAre(1, 8, 16));
  override_generation({.samples = 20, .pass_at = {5, 20}}, task);
  EXPECT_THAT(metric_names(task), ElementsAre("pass@5", "pass@20"));
  EXPECT_EQ(task.primary, "pass@5");
  TaskConfig one = shipped_task("humaneval");
  EXPECT_THAT(error_text<ConfigError>([&] { override_generation({.samples = 8}, one); }),
              AllOf(HasSubstr("humaneval"), HasSubstr("--temperature")));
  one = shipped_task("humaneval");
  EXPECT_THAT(error_text<ConfigError>(
                  [&] { override_generation({.samples = 8, .temperature = 0.2, .pass_at = {10}}, one); }),
              AllOf(HasSubstr("pass@10"), HasSubstr("--num-samples")));
  TaskConfig judged = shipped_task("alpaca_eval_2");
  override_generation({.samples = 8, .temperature = 0.7}, judged);
  EXPECT_EQ(judged.generation.samples, 1);
  TaskConfig choices = shipped_task("piqa");
  EXPECT_NO_THROW(override_generation({.samples = 8}, choices));
}

TEST_F(SuiteOptions, SubgroupsAreMeansOverTheirRowsAndAddUpToTheWhole) {
  TaskConfig task = choice_task();
  task.subgroup_field = "s";
  task.subgroups = {{"first", {"x"}}, {"rest", {"y", "z"}}};
  EvaluationOptions run = options(task);
  const EvaluationResults results = evaluate(model_, tokenizer_, run);
  ASSERT_TRUE(results.is_complete()) << results.failures.front().message;
  const TaskResult& whole = results.tasks[0];
  ASSERT_EQ(whole.subgroups.size(), 2u);
  EXPECT_EQ(whole.subgroups[1].num_rows, 2);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(
        whole.primary_result().budgets[i].value,
        (whole.subgroups[0].metric.budgets[i].value + 2.0 * whole.subgroups[1].metric.budgets[i].value) / 3.0,
        1e-12);
  }
  EXPECT_EQ(to_json(results)["tasks"]["choice"]["subgroups"]["rest"]["rows"], 2);
  EXPECT_THAT(to_terminal_table(results), HasSubstr("acc, rest"));
  run.limit = 1;
  EXPECT_EQ(evaluate(model_, tokenizer_, run).tasks[0].subgroups.size(), 1u)
      << "parts without rows are left out";
  run.tasks[0].subgroups.pop_back();
  run.limit = 0;
  EXPECT_THAT(evaluate(model_, tokenizer_, run).failures.at(0).message,
              AllOf(HasSubstr("choice.jsonl:2"), HasSubstr("`y`"), HasSubstr("no subgroup")));
}

TEST_F(SuiteOptions, MmluHasItsFourSubgroupsOfAllSubjects) {
  const TaskConfig task = shipped_task("mmlu");
  ASSERT_EQ(task.subgroups.size(), 4u);
  size_t subjects = 0;
  for (const SubgroupConfig& group : task.subgroups) subjects += group.values.size();
  EXPECT_EQ(subjects, 57u);
}

TEST_F(SuiteOptions, InADialogueShotsAreTurnsAndTheAnswerIsScoredByItself) {
  EvaluationOptions run = options(choice_task());
  run.chat_template = plain_template();
  run.system_prompt = "Be brief.";
  run.num_shots = 1;
  run.limit = 2;
  const auto ids = [&](PromptLayout layout, size_t row) {
    run.chat_layout = layout;
    const EvaluationResults results = evaluate(model_, tokenizer_, run);
    EXPECT_TRUE(results.is_complete()) << results.failures.front().message;
    EXPECT_EQ(to_json(results)["context"]["chat_layout"], enum_to_name(layout));
    return read_rows(folder_.path() / "samples/choice.jsonl", 0).at(row).value()["token_ids"];
  };
  const auto with_bos = [](const std::string& text) {
    std::vector<int32_t> expected = byte_ids(text);
    expected.insert(expected.begin(), 1);
    return nlohmann::json(expected);
  };
  const auto turns = ids(PromptLayout::kTurns, 1);
  // EOS, id 2, ends an answer of this template; contents are trimmed.
  std::vector<int32_t> expected = {1};
  for (const int32_t id : byte_ids("Be brief.\n\nChoose.\n\nUser:\nQ one?\nAssistant:\nyes"))
    expected.push_back(id);
  expected.push_back(2);
  for (const int32_t id : byte_ids("\nUser:\nQ two?\nAssistant:\n")) expected.push_back(id);
  EXPECT_EQ(turns[0]["context"], nlohmann::json(expected));
  EXPECT_EQ(turns[1]["continuation"], nlohmann::json(byte_ids("no")))
      << "no delimiter stands before an answer";
  const auto message = ids(PromptLayout::kOneMessage, 1);
  EXPECT_EQ(message[0]["context"],
            with_bos("Be brief.\n\nChoose.\n\nUser:\nQ one?  yes\n\nQ two?\nAssistant:\n"));
}

TEST_F(SuiteOptions, EveryTurnOfADialogueIsRoutedAsInTraining) {
  const ChatTemplate chat = plain_template();
  const ChatRenderer renderer(chat, tokenizer_);
  const Conversation before = {{ChatRole::kUser, "one"},
                               {ChatRole::kAssistant, "1, and more"},
                               {ChatRole::kUser, "two"},
                               {ChatRole::kAssistant, "2"}};
  PairEncoder encoder(tokenizer_, BosPolicy::kAuto, 2048);
  const Request request =
      encoder.encode_answer(dialogue_prompt(renderer, before, "three"), "3 or so", "here");
  ASSERT_EQ(request.responses.size(), 2u);
  const PackingOptions options = {8192, 4, RoutingMode::kLastPromptToken};
  const std::vector<RequestTree> trees = build_request_trees({request}, options.routing);
  const RequestBatch batch = pack_request_trees({request}, trees, options, 0);

  Conversation whole = before;
  whole.push_back({ChatRole::kUser, "three"});
  whole.push_back({ChatRole::kAssistant, "3 or so"});
  const ChatExample training = renderer.render(whole);
  // The tokens that are predicted but no inputs: the answer's last one here, and EOS behind it there.
  const int64_t num_inputs = training.num_pairs() - 1;
  std::vector<ResponseSpan> responses = training.responses;
  responses.back().end = num_inputs;
  const SegmentMap expected = chat_segments({{{0, num_inputs, responses}}}, num_inputs, 4);
  // Which runs share an answer's first segment with its prompt is spelled in two pieces there.
  const auto selectors = [](const SegmentMap& map) {
    std::vector<int64_t> of_token(static_cast<size_t>(map.num_tokens), -1);
    for (const Segment& segment : map.segments) {
      for (int64_t i = segment.begin; i < segment.end; ++i)
        of_token[static_cast<size_t>(i)] = segment.selector;
    }
    return of_token;
  };
  EXPECT_EQ(batch.input.segments.num_tokens, num_inputs);
  EXPECT_EQ(selectors(batch.input.segments), selectors(expected));
}

TEST_F(SuiteOptions, TruncationKeepsAnswersThatKeepTheirBeginning) {
  std::vector<int32_t> ids(20, 7);
  std::vector<ResponseSpan> responses = {{3, 6}, {10, 14}};
  drop_left(3, ids, responses);
  EXPECT_EQ(ids.size(), 17u);
  EXPECT_THAT(responses, ElementsAre(ResponseSpan{7, 11})) << "the first has no token before it";
}

TEST_F(SuiteOptions, AnswersForJudgesAreWrittenForEveryBudget) {
  write_text(
      folder_.path() / "alpaca_eval/alpaca_eval_gpt4_turbo_reference.jsonl",
      "{\"dataset\": \"d\", \"instruction\": \"Say a.\", \"output\": \"a\", \"generator\": \"base\"}\n"
      "{\"dataset\": \"d\", \"instruction\": \"Say b.\", \"output\": \"b\", \"generator\": \"base\"}\n");
  write_text(folder_.path() / "arena_hard/question.jsonl",
             "{\"uid\": \"u1\", \"category\": \"c\", \"cluster\": \"k\", \"prompt\": \"Why?\"}\n");
  EvaluationOptions run = options(shipped_task("alpaca_eval_2"));
  run.tasks.push_back(shipped_task("arena_hard"));
  run.max_new_tokens = 6;
  run.answers = folder_.path() / "answers";
  run.model_name = "mine";
  const EvaluationResults results = evaluate(model_, tokenizer_, run);
  ASSERT_TRUE(results.is_complete()) << results.failures.front().message;
  for (const std::string budget : {"small", "medium", "large"}) {
    const auto outputs = read_alpaca_outputs(run.answers / "alpaca_eval_2" / (budget + ".json"));
    ASSERT_EQ(outputs.size(), 2u);
    EXPECT_EQ(outputs[1].instruction, "Say b.");
    EXPECT_EQ(outputs[1].generator, "mine-" + budget);
    const auto logged = read_rows(folder_.path() / "samples/alpaca_eval_2.jsonl", 0).at(1).value();
    EXPECT_EQ(outputs[1].output, logged["budgets"][budget]["texts"][0]);
    const auto answers = read_arena_answers(run.answers / "arena_hard" / (budget + ".jsonl"));
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(answers[0].uid, "u1");
    EXPECT_EQ(answers[0].prompt, "Why?");
    EXPECT_EQ(answers[0].model, "mine-" + budget);
    EXPECT_GT(answers[0].time_s, 1.7e9);
  }
  const nlohmann::ordered_json json = to_json(results);
  EXPECT_THAT(json["tasks"]["arena_hard"]["answers"]["large"].get<std::string>(), HasSubstr("large.jsonl"));
  EXPECT_THAT(to_terminal_table(results),
              AllOf(HasSubstr("smoe-judge alpaca_eval_2 --outputs"), HasSubstr("characters")));
  run.answers.clear();
  EXPECT_THAT(evaluate(model_, tokenizer_, run).failures.at(0).message, HasSubstr("name a folder"));
}

TEST_F(SuiteOptions, UnknownNamesAreFailuresOfARunThatGoesOn) {
  write_text(folder_.path() / "tasks/good.yaml",
             "name: good\ntest_file: a\nkind: last_word\nrow: {prompt: '{t}'}\nmetrics: [acc]\n");
  write_text(folder_.path() / "tasks/broken.yaml", "name: broken\nkindd: last_word\n");
  std::vector<UnusableName> unusable;
  const TaskSelection selection =
      TaskLibrary(folder_.path()).select_usable({"goood", "good", "broken"}, unusable);
  EXPECT_EQ(selection.tasks.size(), 1u);
  ASSERT_EQ(unusable.size(), 2u);
  EXPECT_THAT(unusable[0].message, HasSubstr("did you mean `good`"));
  EXPECT_THAT(unusable[1].message, HasSubstr("kindd"));
  EvaluationOptions run = options(question_task());
  run.failures = {{unusable[0].name, unusable[0].message}};
  const EvaluationResults results = evaluate(model_, tokenizer_, run);
  EXPECT_EQ(results.tasks.size(), 1u);
  EXPECT_FALSE(results.is_complete());
  EXPECT_THAT(to_terminal_table(results), HasSubstr("NOT SCORED: goood"));
}

TEST_F(SuiteOptions, AMalformedFileStopsOnlyItsTask) {
  EvaluationOptions run = options(question_task());
  TaskConfig broken = question_task();
  broken.name = "broken";
  broken.test_file = "broken.jsonl";
  write_text(folder_.path() / "broken.jsonl", "{\"q\": \"one\", \"a\": \"1\"}\n{\"q\": \n");
  run.tasks.insert(run.tasks.begin(), broken);
  const EvaluationResults results = evaluate(model_, tokenizer_, run);
  EXPECT_EQ(results.tasks.size(), 1u);
  EXPECT_THAT(results.failures.at(0).message,
              AllOf(HasSubstr("broken.jsonl:2"), HasSubstr("not valid JSON")));
}

TEST(WikitextFilter, WordsAndBytesAreThoseOfTheFile) {
  const TemporaryFolder folder;
  write_text(folder.path() / "wikitext/test.jsonl", "{\"page\": \" a , b @-@ c \"}\n");
  const auto items = build_items(shipped_task("wikitext"), {folder.path(), 0, 0, 1234});
  EXPECT_EQ(items[0].pairs[0].continuation, " a, b-c ");
  EXPECT_EQ(items[0].choices[0], " a , b @-@ c ");
  const auto words =
      metric_series(Metric::kWordPerplexity, TaskKind::kRollingText, items, {{{-5.0, true, 4}}});
  EXPECT_EQ(words.weights[0], 7.0) << "white space at both ends makes empty pieces, as in Python's re.split";
}

}  // namespace
}  // namespace smoe
