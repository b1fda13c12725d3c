#include "smoe/eval/judged_benchmarks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "eval/judge_prompts.h"
#include "eval/judge_server.h"
#include "smoe/core/error.h"
#include "smoe/core/json.h"
#include "temporary_folder.h"

namespace smoe {
namespace {

using ::testing::AllOf;
using testing::completion;
using testing::file_text;
using ::testing::HasSubstr;
using testing::JudgeServer;
using testing::message_of;
using testing::write_text_file;

constexpr int kNumRows = 12;

// Made-up benchmarks in the layout of the real ones, and answers of a model.
class JudgedBenchmarks : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_ / "alpaca_eval");
    std::filesystem::create_directories(folder_ / "arena_hard");
    write_text_file(
        folder_ / "alpaca_eval/judge_prompt_weighted_alpaca_eval_gpt4_turbo.jsonl",
        R"({"name": "made_up_judge", "judge_model": "prescribed", "max_tokens": 1, "temperature": 1,
"top_logprobs": 5, "numerator_token": "m", "denominator_tokens": ["m", "M"], "prompt_template":)"
        " \"<|im_start|>system\\nBe fair.\\n<|im_end|>\\n<|im_start|>user\\nQ {instruction}\\n"
        "m: {output_1}\\nM: {output_2}\\n<|im_end|>\"}");
    one_line("alpaca_eval/judge_prompt_weighted_alpaca_eval_gpt4_turbo.jsonl");
    write_text_file(
        folder_ / "arena_hard/judge_prompt.jsonl",
        R"({"judge_model": "prescribed", "baseline": "base", "max_tokens": 100, "temperature": 0.0,
"regex_patterns": ["\\[\\[([AB<>=]+)\\]\\]", "\\[([AB<>=]+)\\]"], "system_prompt": "Be fair.",
"prompt_template": "Q {QUESTION}\nA: {ANSWER_A}\nB: {ANSWER_B}"})");
    one_line("arena_hard/judge_prompt.jsonl");
    std::string questions;
    std::vector<AlpacaOutput> reference;
    std::vector<ArenaAnswer> baseline;
    for (int i = 0; i < kNumRows; ++i) {
      const std::string question = "question " + std::to_string(i);
      const std::string bad = "bad" + std::string(i + 1, '.');
      const std::string good = "good {output_1} {ANSWER_A}" + std::string((7 * i) % 13, '!');
      reference.push_back({"made_up", question, bad, "base"});
      outputs_.push_back({"made_up", question, good, "mine"});
      questions +=
          nlohmann::json{{"uid", "u" + std::to_string(i)}, {"category", "c"}, {"prompt", question}}.dump();
      questions += "\n";
      baseline.push_back({"u" + std::to_string(i), "", "base", question, bad, 1.5});
      answers_.push_back({"u" + std::to_string(i), "", "mine", question, good, 2.5});
    }
    write_alpaca_outputs(folder_ / "alpaca_eval/alpaca_eval_gpt4_turbo_reference.jsonl", reference);
    write_alpaca_outputs(folder_ / "outputs.json", outputs_);
    write_text_file(folder_ / "arena_hard/question.jsonl", questions);
    write_arena_answers(folder_ / "arena_hard/baseline_base.jsonl", baseline);
    write_arena_answers(folder_ / "answers.jsonl", answers_);
  }

  // The raw strings above are broken over lines for reading; a JSONL file has one line an object.
  void one_line(const std::string& name) {
    const nlohmann::json json = read_json_file(folder_ / name);
    write_text_file(folder_ / name, json.dump() + "\n");
  }

  JudgedBenchmarkOptions options(const JudgeServer* server, const std::string& outputs) const {
    JudgedBenchmarkOptions options;
    options.outputs = folder_ / outputs;
    options.data = folder_.path();
    options.out = folder_ / "out";
    if (server != nullptr) options.endpoint = server->endpoint();
    return options;
  }

  const testing::TemporaryFolder folder_;
  std::vector<AlpacaOutput> outputs_;
  std::vector<ArenaAnswer> answers_;
};

// Prefers the good answer with probability 0.8, wherever it stands.
void fair_token_judge(int, const nlohmann::json& body, const httplib::Request&, httplib::Response& response) {
  const std::string prompt = body["messages"][1]["content"];
  const double first = prompt.find("m: good") != std::string::npos ? 0.8 : 0.2;
  // Half of the mass is on words that do not count.
  response.set_content(
      completion("m", {{"m", std::log(first / 2)}, {"M", std::log((1 - first) / 2)}, {"The", std::log(0.5)}}),
      "application/json");
}

TEST_F(JudgedBenchmarks, AlpacaWinRateIsTheProbabilityOfTheModelsAnswerWhereverItStands) {
  JudgeServer server(fair_token_judge);
  const JudgedBenchmark result = judge_alpaca_eval(options(&server, "outputs.json"));
  const nlohmann::ordered_json& scores = result.json["scores"];
  EXPECT_NEAR(scores["win_rate"].get<double>(), 0.8, 1e-12);
  EXPECT_NEAR(scores["standard_error"].get<double>(), 0.0, 1e-12);
  EXPECT_EQ(scores["wins"], kNumRows);
  EXPECT_EQ(scores["length_controlled"]["formula"], "length_controlled_minimal");
  EXPECT_EQ(scores["length_controlled"]["is_leaderboard_formula"], false);
  EXPECT_TRUE(scores["length_controlled"]["standard_error"].is_null());
  EXPECT_THAT(result.terminal_table, AllOf(HasSubstr("80.00"), HasSubstr("not the leaderboard's")));
  EXPECT_EQ(result.num_invalid, 0);
  EXPECT_EQ(result.json["context"]["judge"]["prescribed_model"], "prescribed");
  // Both orders occur, each answer is inserted as it is, and every annotation says 1.8.
  const nlohmann::json annotations = read_json_file(folder_ / "out/annotations.json");
  int64_t switched = 0;
  for (const nlohmann::json& annotation : annotations) {
    EXPECT_NEAR(annotation["preference"].get<double>(), 1.8, 1e-12);
    switched += annotation["is_switched_outputs"].get<bool>();
  }
  EXPECT_GT(switched, 0);
  EXPECT_LT(switched, kNumRows);
  const nlohmann::json body = nlohmann::json::parse(server.bodies()[0]);
  EXPECT_EQ(body["messages"][0], nlohmann::json({{"role", "system"}, {"content", "Be fair."}}));
  EXPECT_THAT(body["messages"][1]["content"].get<std::string>(), HasSubstr("good {output_1} {ANSWER_A}"));
  EXPECT_EQ(body["top_logprobs"], 5);
}

TEST_F(JudgedBenchmarks, AnnotationsFromAFileGiveTheSameScores) {
  JudgeServer server(fair_token_judge);
  const JudgedBenchmark asked = judge_alpaca_eval(options(&server, "outputs.json"));
  JudgedBenchmarkOptions from_file = options(nullptr, "outputs.json");
  from_file.judgements = folder_ / "out/annotations.json";
  from_file.out = folder_ / "out2";
  const nlohmann::ordered_json scores = judge_alpaca_eval(from_file).json["scores"];
  // A preference of 0.8 is written as 1.8, which rounds differently.
  EXPECT_NEAR(scores["win_rate"].get<double>(), asked.json["scores"]["win_rate"].get<double>(), 1e-12);
  EXPECT_NEAR(scores["length_controlled"]["win_rate"].get<double>(),
              asked.json["scores"]["length_controlled"]["win_rate"].get<double>(), 1e-8);
  EXPECT_EQ(scores["wins"], asked.json["scores"]["wins"]);
}

TEST_F(JudgedBenchmarks, AlpacaJudgesWithoutUsableTokensAreCountedAsInvalid) {
  JudgeServer server([](int number, const nlohmann::json& body, const httplib::Request& request,
                        httplib::Response& response) {
    const std::string prompt = body["messages"][1]["content"];
    if (prompt.starts_with("Q question 3\n")) {
      response.set_content(completion("Both", {{"Both", -0.1}, {"The", -3.0}}), "application/json");
    } else if (prompt.starts_with("Q question 5\n")) {
      response.set_content(completion("m"), "application/json");
    } else {
      fair_token_judge(number, body, request, response);
    }
  });
  const JudgedBenchmark result = judge_alpaca_eval(options(&server, "outputs.json"));
  EXPECT_EQ(result.num_invalid, 2);
  EXPECT_NEAR(result.json["scores"]["win_rate"].get<double>(), 0.8, 1e-12);
  const nlohmann::json annotations = read_json_file(folder_ / "out/annotations.json");
  EXPECT_TRUE(annotations[3]["preference"].is_null());
  EXPECT_EQ(annotations[3]["raw_completion"], "Both");
  EXPECT_THAT(annotations[3]["problem"].get<std::string>(), HasSubstr("m, M"));
  EXPECT_THAT(annotations[5]["problem"].get<std::string>(), HasSubstr("log-probabilities"));
}

TEST_F(JudgedBenchmarks, TheOrderOfTwoAnswersDependsOnSeedAndInstructionOnly) {
  const auto order = [&](uint64_t seed, int64_t limit) {
    std::vector<bool> first;
    std::vector<AlpacaOutput> reference = outputs_;
    for (AlpacaOutput& output : reference) output.generator = "base";
    for (const AlpacaItem& item : pair_alpaca_outputs(reference, outputs_, {seed, limit, false})) {
      first.push_back(item.model_is_first);
    }
    return first;
  };
  const std::vector<bool> all = order(1, 0);
  EXPECT_EQ(order(1, 5), std::vector<bool>(all.begin(), all.begin() + 5));
  EXPECT_NE(order(2, 0), all);
}

TEST_F(JudgedBenchmarks, MissingAndForeignAnswersAreRefused) {
  std::vector<AlpacaOutput> fewer(outputs_.begin() + 2, outputs_.end());
  write_alpaca_outputs(folder_ / "fewer.json", fewer);
  JudgeServer server(fair_token_judge);
  EXPECT_THAT(message_of<DataError>([&] { judge_alpaca_eval(options(&server, "fewer.json")); }),
              AllOf(HasSubstr("2 instructions"), HasSubstr("question 0"), HasSubstr("--allow-missing")));
  JudgedBenchmarkOptions allowed = options(&server, "fewer.json");
  allowed.allow_missing = true;
  EXPECT_EQ(judge_alpaca_eval(allowed).json["scores"]["rows"], kNumRows - 2);
  fewer[0].instruction = "something else";
  write_alpaca_outputs(folder_ / "fewer.json", fewer);
  EXPECT_THAT(message_of<DataError>([&] { judge_alpaca_eval(options(&server, "fewer.json")); }),
              HasSubstr("1 of 10 answers belong to no instruction"));
  answers_.pop_back();
  write_arena_answers(folder_ / "answers.jsonl", answers_);
  EXPECT_THAT(message_of<DataError>([&] { judge_arena_hard(options(&server, "answers.jsonl")); }),
              AllOf(HasSubstr("1 questions"), HasSubstr("u11"), HasSubstr("--allow-missing")));
}

// Says that the good answer is much better, whatever its place, but for two questions.
void verdict_judge(int, const nlohmann::json& body, const httplib::Request&, httplib::Response& response) {
  const std::string prompt = body["messages"][1]["content"];
  const bool good_is_a = prompt.find("A: good") != std::string::npos;
  std::string text = good_is_a ? "First [[A=B]], no: [[A>>B]]." : "My verdict: [[b>>a]]";
  if (prompt.starts_with("Q question 1\n")) text = "A tie: [A=B]";
  if (prompt.starts_with("Q question 2\n") && good_is_a) text = "I cannot say. [[A]B]]";
  response.set_content(completion(text), "application/json");
}

TEST_F(JudgedBenchmarks, ArenaPlaysTwoGamesWithPositionsSwappedAndCountsStrongVerdictsThreeTimes) {
  JudgeServer server(verdict_judge);
  const JudgedBenchmark result = judge_arena_hard(options(&server, "answers.jsonl"));
  const nlohmann::ordered_json& scores = result.json["scores"];
  EXPECT_EQ(server.num_requests(), 2u * kNumRows);
  EXPECT_EQ(scores["verdicts"]["much_better"], 21);
  EXPECT_EQ(scores["verdicts"]["tie"], 2);
  EXPECT_EQ(result.num_invalid, 1);
  EXPECT_NEAR(scores["win_rate"].get<double>(), (3.0 * 21 + 1.0) / (3.0 * 21 + 2.0), 1e-9);
  EXPECT_NEAR(scores["unweighted_win_rate"].get<double>(), 22.0 / 23.0, 1e-12);
  EXPECT_LE(scores["low"].get<double>(), scores["win_rate"].get<double>());
  EXPECT_GE(scores["high"].get<double>(), scores["win_rate"].get<double>());
  // The raw text of the useless answer is kept.
  const std::string judgements = file_text(folder_ / "out/judgements.jsonl");
  EXPECT_THAT(judgements, AllOf(HasSubstr("I cannot say."), HasSubstr(R"("score":null)")));
  EXPECT_EQ(std::ranges::count(judgements, '\n'), kNumRows);
}

TEST_F(JudgedBenchmarks, ArenaJudgementsFromAFileGiveTheSameScores) {
  JudgeServer server(verdict_judge);
  const JudgedBenchmark asked = judge_arena_hard(options(&server, "answers.jsonl"));
  JudgedBenchmarkOptions from_file = options(nullptr, "answers.jsonl");
  from_file.judgements = folder_ / "out/judgements.jsonl";
  from_file.out = folder_ / "out2";
  EXPECT_EQ(judge_arena_hard(from_file).json["scores"], asked.json["scores"]);
}

TEST_F(JudgedBenchmarks, AKilledRunContinuesWithTheSameResult) {
  std::atomic<bool> is_broken = true;
  JudgeServer server([&](int number, const nlohmann::json& body, const httplib::Request& request,
                         httplib::Response& response) {
    if (is_broken && number > 10) {
      response.status = 401;
      return;
    }
    verdict_judge(number, body, request, response);
  });
  EXPECT_THAT(message_of<Error>([&] { judge_arena_hard(options(&server, "answers.jsonl")); }),
              HasSubstr("401"));
  is_broken = false;
  const size_t before = server.num_requests();
  const JudgedBenchmark result = judge_arena_hard(options(&server, "answers.jsonl"));
  EXPECT_EQ(result.json["scores"]["verdicts"]["much_better"], 21);
  EXPECT_EQ(result.json["usage"]["resumed"], 10);
  EXPECT_EQ(server.num_requests() - before, 2u * kNumRows - 10u);
}

TEST_F(JudgedBenchmarks, AJudgeThatOnlyTalksNonsenseIsAnErrorWithItsWords) {
  JudgeServer server([](int, const nlohmann::json&, const httplib::Request&, httplib::Response& response) {
    response.set_content(completion("bananas"), "application/json");
  });
  EXPECT_THAT(message_of<DataError>([&] { judge_arena_hard(options(&server, "answers.jsonl")); }),
              AllOf(HasSubstr("none of 24"), HasSubstr("bananas")));
}

TEST_F(JudgedBenchmarks, AFileThatIsNotThereIsNamedWithItsOption) {
  JudgeServer server(fair_token_judge);
  const auto alpaca_error = [&](const JudgedBenchmarkOptions& options) {
    return message_of<DataError>([&] { judge_alpaca_eval(options); });
  };
  EXPECT_THAT(alpaca_error(options(&server, "nowhere.json")),
              AllOf(HasSubstr("nowhere.json: cannot open the file: No such file"), HasSubstr("--outputs")));
  JudgedBenchmarkOptions wrong = options(&server, "outputs.json");
  wrong.difficulty_file = folder_ / "difficulty.csv";
  EXPECT_THAT(alpaca_error(wrong), AllOf(HasSubstr("difficulty.csv: cannot"), HasSubstr("--difficulty")));
  wrong.baseline = folder_ / "baseline.json";
  EXPECT_THAT(alpaca_error(wrong), AllOf(HasSubstr("baseline.json: cannot"), HasSubstr("--baseline")));
  wrong = options(&server, "outputs.json");
  wrong.data = folder_ / "elsewhere";
  EXPECT_THAT(alpaca_error(wrong),
              AllOf(HasSubstr("elsewhere/alpaca_eval/"),
                    HasSubstr("--data the folder that holds alpaca_eval/"), HasSubstr("--baseline")));
  wrong = options(nullptr, "answers.jsonl");
  wrong.judgements = folder_ / "judgements.jsonl";
  EXPECT_THAT(message_of<DataError>([&] { judge_arena_hard(wrong); }),
              AllOf(HasSubstr("judgements.jsonl: cannot"), HasSubstr("--judgements")));
  std::filesystem::remove(folder_ / "arena_hard/question.jsonl");
  EXPECT_THAT(message_of<DataError>([&] { judge_arena_hard(options(&server, "answers.jsonl")); }),
              AllOf(HasSubstr("question.jsonl: cannot"), HasSubstr("--data")));
  EXPECT_TRUE(server.bodies().empty());
}

TEST_F(JudgedBenchmarks, NeedsEitherAnEndpointOrAFile) {
  EXPECT_THAT(message_of<ConfigError>([&] { judge_arena_hard(options(nullptr, "answers.jsonl")); }),
              AllOf(HasSubstr("--base-url"), HasSubstr("--judgements")));
}

TEST_F(JudgedBenchmarks, JudgementsOfOtherAnswersAreRefused) {
  JudgeServer server(fair_token_judge);
  judge_alpaca_eval(options(&server, "outputs.json"));
  outputs_[4].output += " changed";
  write_alpaca_outputs(folder_ / "outputs.json", outputs_);
  JudgedBenchmarkOptions from_file = options(nullptr, "outputs.json");
  from_file.judgements = folder_ / "out/annotations.json";
  EXPECT_THAT(message_of<DataError>([&] { judge_alpaca_eval(from_file); }),
              AllOf(HasSubstr("entry:5"), HasSubstr("other answers")));
}

TEST(ModelOutputs, AreReadAsTheyWereWritten) {
  const testing::TemporaryFolder folder;
  write_alpaca_outputs(folder / "a.json", {{"set", "say \"ü\"\n", "ü\n", "mine"}, {"", "b", "", "mine"}});
  const std::vector<AlpacaOutput> outputs = read_alpaca_outputs(folder / "a.json");
  EXPECT_EQ(outputs[0].instruction, "say \"ü\"\n");
  EXPECT_EQ(outputs[1].output, "");
  write_arena_answers(folder / "b.jsonl", {{"u", "id", "mine", "why?", "because\n", 1711397284.5}});
  const ArenaAnswer answer = read_arena_answers(folder / "b.jsonl")[0];
  EXPECT_EQ(answer.answer, "because\n");
  EXPECT_EQ(answer.prompt, "why?");
  EXPECT_EQ(answer.answer_id, "id");
  EXPECT_EQ(answer.time_s, 1711397284.5);
}

TEST(ModelOutputs, BadFilesAreRefusedWithTheirPlace) {
  const testing::TemporaryFolder folder;
  const auto alpaca_problem = [&](const std::string& text) {
    write_text_file(folder / "a.json", text);
    return message_of<DataError>([&] { read_alpaca_outputs(folder / "a.json"); });
  };
  EXPECT_THAT(alpaca_problem("[]"), HasSubstr("empty"));
  EXPECT_THAT(alpaca_problem("[1]"), AllOf(HasSubstr("entry 1"), HasSubstr("number")));
  EXPECT_THAT(alpaca_problem(R"([{"instruction": "a", "generator": "g"}])"), HasSubstr("`output`"));
  EXPECT_THAT(alpaca_problem(R"([{"instruction": "a", "output": "", "generator": "g"},
                                 {"instruction": "a", "output": "", "generator": "g"}])"),
              HasSubstr("a second answer"));
  EXPECT_THAT(alpaca_problem(R"([{"instruction": "a", "output": "", "generator": "g"},
                                 {"instruction": "b", "output": "", "generator": "h"}])"),
              AllOf(HasSubstr("entry:2"), HasSubstr("of h among answers of g")));
  write_text_file(folder / "b.jsonl",
                  R"({"uid": "u", "model": "m", "messages": [{"role": "user", "content": "x"}]})");
  EXPECT_THAT(message_of<DataError>([&] { read_arena_answers(folder / "b.jsonl"); }),
              AllOf(HasSubstr("b.jsonl:1"), HasSubstr("assistant")));
}

TEST(JudgePrompts, TemplatesAreSplitIntoMessagesAndFilledInOnePass) {
  const auto messages =
      parse_chat_template("<|im_start|>system\nA\n<|im_end|>\n<|im_start|>user\n{x} {y}<|im_end|>", "f");
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_EQ(messages[0].content, "A");
  EXPECT_EQ(fill_placeholders(messages[1].content + "{", {{"x", "{y}"}, {"y", "2"}}), "{y} 2{");
  EXPECT_THAT(message_of<DataError>([] { parse_chat_template("hello", "file:1"); }), HasSubstr("file:1"));
  EXPECT_THAT(message_of<DataError>([] { parse_chat_template("<|im_start|>robot\nA<|im_end|>", "f"); }),
              HasSubstr("robot"));
}

TEST(LengthControl, TablesAreCheckedWithTheirLine) {
  const testing::TemporaryFolder folder;
  const auto problem = [&](const std::string& text) {
    write_text_file(folder / "d.csv", text);
    return message_of<DataError>([&] { read_length_control_data(folder / "d.csv", {}); });
  };
  EXPECT_THAT(problem(",difficulty\n0,1\n"),
              AllOf(HasSubstr("d.csv:1"), HasSubstr("instruction_difficulty")));
  EXPECT_THAT(problem(",instruction_difficulty\n0,easy\n"), AllOf(HasSubstr("d.csv:2"), HasSubstr("easy")));
  EXPECT_THAT(problem(",instruction_difficulty\n"), HasSubstr("header"));
  std::vector<LengthControlItem> items(6, {0, 0.5, 10, 20});
  EXPECT_THAT(message_of<DataError>([&] { length_controlled_win_rate(items, {}); }),
              HasSubstr("same length"));
  for (int64_t i = 0; i < 6; ++i) items[i] = {i, 0.5, 10 + i, 20};
  EXPECT_THAT(message_of<DataError>([&] {
                length_controlled_win_rate(items, {.difficulty = {0.1, 0.2}, .gamed = std::nullopt});
              }),
              HasSubstr("instruction 2"));
}

TEST(BradleyTerry, AModelThatWinsEverythingHasAWinRateOfOneAndUnlinkedModelsAreRefused) {
  const std::vector<Battle> battles(20, {"x", "base", 1.0, 1.0});
  EXPECT_NEAR(bootstrap_win_rate({battles}, "x", "base", {}).win_rate, 1.0, 1e-9);
  EXPECT_THAT(message_of<DataError>([] {
                bradley_terry({{"x", "base", 1.0, 1.0}, {"y", "z", 0.5, 1.0}}, "base");
              }),
              AllOf(HasSubstr("y"), HasSubstr("base")));
}

TEST(BradleyTerry, DrawingWholeQuestionsWidensTheInterval) {
  std::vector<std::vector<Battle>> single;
  std::vector<std::vector<Battle>> grouped;
  for (int i = 0; i < 60; ++i) {
    const Battle battle{"x", "base", i % 3 == 0 ? 1.0 : 0.0, 1.0};
    grouped.push_back({6, battle});
    for (int copy = 0; copy < 6; ++copy) single.push_back({battle});
  }
  const WinRateInterval narrow = bootstrap_win_rate(single, "x", "base", {});
  const WinRateInterval wide = bootstrap_win_rate(grouped, "x", "base", {});
  EXPECT_EQ(narrow.win_rate, wide.win_rate);
  EXPECT_GT(wide.high - wide.low, 1.8 * (narrow.high - narrow.low));
}

}  // namespace
}  // namespace smoe
