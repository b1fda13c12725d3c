// The planner by itself, and whole tasks with and without sharing: the same results.
#include "smoe/eval/shared_prefixes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "eval/eval_test_support.h"
#include "smoe/core/random.h"
#include "smoe/eval/evaluator.h"
#include "smoe/infer/prefix_cache.h"

namespace smoe {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

using Ids = std::vector<int32_t>;

// `length` ids that belong to `group`, then `own` ids that nobody else has.
Ids sequence(int32_t group, int64_t length, int32_t own_id, int64_t own) {
  Ids ids(static_cast<size_t>(length), group);
  for (int64_t i = 0; i < own; ++i) ids.push_back(1000 + own_id);
  return ids;
}

PrefixPlan plan(const std::vector<Ids>& sequences, int64_t unit) {
  return plan_shared_prefixes({sequences.begin(), sequences.end()}, unit);
}

TEST(SharedPrefixes, EveryGroupGetsItsOwnInWholeUnits) {
  const std::vector<Ids> sequences = {sequence(1, 600, 0, 5), sequence(2, 650, 1, 9), sequence(1, 600, 2, 3),
                                      sequence(3, 700, 3, 4), sequence(2, 650, 4, 1)};
  EXPECT_THAT(plan(sequences, 1).lengths, ElementsAre(600, 650, 600, 0, 650));
  EXPECT_THAT(plan(sequences, 32).lengths, ElementsAre(576, 640, 576, 0, 640));
  const PrefixCounts counts = plan(sequences, 32).counts;
  EXPECT_EQ(counts.prefixes, 2);
  EXPECT_EQ(counts.prefix_tokens, 576 + 640);
  EXPECT_EQ(counts.spared_tokens, 576 + 640);
}

TEST(SharedPrefixes, LongPrefixesOfGroupsWinOverAShortOneOfAll) {
  // All begin with the same 40 ids; the two groups go on together for 500 more.
  std::vector<Ids> sequences;
  for (int32_t i = 0; i < 8; ++i) {
    Ids ids(40, 7);
    for (const int32_t id : sequence(i % 2, 500, i, 6)) ids.push_back(id);
    sequences.push_back(ids);
  }
  EXPECT_THAT(plan(sequences, 1).lengths, Each(540));
  EXPECT_EQ(plan(sequences, 1).counts.prefixes, 2);
}

TEST(SharedPrefixes, AShortOneOfAllWinsOverALongOneOfTwo) {
  std::vector<Ids> sequences;
  for (int32_t i = 0; i < 30; ++i) sequences.push_back(sequence(1, 200, i / 2, 300 + i));
  EXPECT_THAT(plan(sequences, 1).lengths, Each(200));
}

TEST(SharedPrefixes, OneTokenOfEachSequenceIsLeft) {
  const std::vector<Ids> equal(3, sequence(1, 400, 0, 0));
  EXPECT_THAT(plan(equal, 1).lengths, Each(399));
  EXPECT_THAT(plan(equal, 100).lengths, Each(300));
}

TEST(SharedPrefixes, NothingIsSharedWhereItSparesNothing) {
  EXPECT_THAT(plan({sequence(1, 20, 0, 50), sequence(1, 20, 1, 50)}, 1).lengths, Each(0));
  EXPECT_THAT(plan({sequence(1, 900, 0, 0)}, 1).lengths, Each(0));
  EXPECT_THAT(plan({sequence(1, 900, 0, 1), sequence(1, 900, 1, 1)}, 0).lengths, Each(0));
  EXPECT_TRUE(plan({}, 1).lengths.empty());
}

TEST(SharedPrefixes, TheOrderOfTheSequencesDoesNotMatter) {
  SplitMix64 random(11);
  std::vector<Ids> sequences;
  for (int32_t i = 0; i < 60; ++i) {
    sequences.push_back(sequence(static_cast<int32_t>(random.below(4)),
                                 static_cast<int64_t>(300 + random.below(3)), i,
                                 static_cast<int64_t>(random.below(9))));
  }
  std::vector<int64_t> forward = plan(sequences, 8).lengths;
  std::ranges::reverse(sequences);
  std::vector<int64_t> backward = plan(sequences, 8).lengths;
  std::ranges::reverse(backward);
  EXPECT_EQ(forward, backward);
}

TEST(SharedPrefixes, WhatMayBeSharedDependsOnTheRouting) {
  ModelConfig config = tiny_stepped_config();
  EXPECT_EQ(shareable_prefix_unit(config, RoutingMode::kSegments, 32), 32);
  EXPECT_EQ(shareable_prefix_unit(config, RoutingMode::kLastPromptToken, 32), 0);
  config.routing.mask_source = MaskSource::kRandom;
  EXPECT_EQ(shareable_prefix_unit(config, RoutingMode::kSegments, 32), 0);
  config.architecture = Architecture::kDense;
  EXPECT_EQ(shareable_prefix_unit(config, RoutingMode::kLastPromptToken, 32), 1);
}

ModelConfig config_of(Architecture architecture) {
  ModelConfig config = tiny_stepped_config();
  config.architecture = architecture;
  if (architecture == Architecture::kDense) config.num_moe_layers = 0;
  if (architecture != Architecture::kSteppedMoe) config.size_embedding = SizeEmbedding::kNone;
  return config;
}

// Two subjects, each with its own three shots before every question.
class SharedPrefixTasks : public ::testing::TestWithParam<Architecture> {
 protected:
  SharedPrefixTasks() {
    std::string rows, shots;
    for (int i = 0; i < 14; ++i) {
      const std::string subject = i % 3 == 0 ? "abstract algebra" : "machine learning";
      rows +=
          fmt::format(
              R"({{"s": "{}", "q": "What is the number of row {}", "c": ["{}", "ab {}"], "g": {}, "a": ["{}"]}})",
              subject, i * i, i, i * 7, i % 2, i) +
          "\n";
    }
    for (int i = 0; i < 6; ++i) {
      const std::string subject = i % 2 == 0 ? "abstract algebra" : "machine learning";
      shots += fmt::format(
                   R"({{"s": "{}", "q": "How much is {} and {}", "c": ["{}", "{}"], "g": 1, "a": ["{}"]}})",
                   subject, i, i + 2, i, 2 * i + 2, 2 * i + 2) +
               "\n";
    }
    write_text(folder_.path() / "rows.jsonl", rows);
    write_text(folder_.path() / "shots.jsonl", shots);
  }

  TaskConfig task(TaskKind kind) const {
    TaskConfig task;
    task.name = kind == TaskKind::kGenerate ? "answers" : "choices";
    task.kind = kind;
    task.test_file = "rows.jsonl";
    task.train_file = "shots.jsonl";
    task.description = "Questions about {s}.\n\n";
    task.row.prompt = "{q}?\nAnswer:";
    task.few_shot.shots = 3;
    task.few_shot.sampler = ShotSampler::kFirstN;
    task.few_shot.same_field = "s";
    if (kind == TaskKind::kGenerate) {
      task.row.targets_field = "a";
      task.generation.max_new_tokens = 7;
      task.answers = {{"", AnswerReading::kStrip, {}}};
      task.primary = "exact_match";
    } else {
      task.row.choices_field = "c";
      task.row.gold.field = "g";
      task.metrics = {Metric::kAccuracy};
      task.primary = "acc";
    }
    return task;
  }

  // The results, and the sample logs of both tasks as one text.
  std::pair<EvaluationResults, std::vector<Row>> run(RoutingMode routing, int64_t max_length, bool shares) {
    EvaluationOptions options;
    options.tasks = {task(TaskKind::kMultipleChoice), task(TaskKind::kGenerate)};
    options.data_folder = folder_.path();
    options.routing = routing;
    options.max_length = max_length;
    options.batch_tokens = 300;
    options.share_prefixes = shares;
    options.samples = folder_.path() / (shares ? "with.jsonl" : "without.jsonl");
    EvaluationResults results = evaluate(model_, tokenizer_, options);
    return {std::move(results), read_rows(options.samples, 0)};
  }

  void expect_same(RoutingMode routing, int64_t max_length, bool expects_sharing) {
    const auto [with, with_rows] = run(routing, max_length, true);
    const auto [without, without_rows] = run(routing, max_length, false);
    ASSERT_TRUE(with.is_complete());
    EXPECT_EQ(with.context.shared_prefixes, expects_sharing ? "on" : "impossible");
    EXPECT_EQ(without.context.shared_prefixes, "off");
    for (const TaskResult& result : without.tasks) EXPECT_EQ(result.shared_prefixes.prefixes, 0);
    for (const TaskResult& result : with.tasks) {
      EXPECT_EQ(result.shared_prefixes.prefixes, expects_sharing ? 2 : 0) << result.name;
      EXPECT_EQ(result.shared_prefixes.spared_tokens > 0, expects_sharing) << result.name;
    }
    ASSERT_EQ(with_rows.size(), without_rows.size());
    for (size_t i = 0; i < with_rows.size(); ++i)
      expect_same_row(with_rows[i].value(), without_rows[i].value());
  }

  static void expect_same_row(const nlohmann::ordered_json& with, const nlohmann::ordered_json& without) {
    for (const auto& [name, budget] : without["budgets"].items()) {
      if (budget.contains("texts")) {
        EXPECT_EQ(with["budgets"][name]["texts"], budget["texts"]);
        continue;
      }
      for (size_t choice = 0; choice < budget["sums"].size(); ++choice) {
        EXPECT_NEAR(with["budgets"][name]["sums"][choice].template get<double>(),
                    budget["sums"][choice].template get<double>(), 1e-4);
      }
    }
  }

  TemporaryFolder folder_;
  ByteTokenizer tokenizer_;
  Model model_ = make_model(config_of(GetParam()));
};
INSTANTIATE_TEST_SUITE_P(Models, SharedPrefixTasks,
                         ::testing::Values(Architecture::kDense, Architecture::kSteppedMoe,
                                           Architecture::kVanillaMoe),
                         [](const auto& test) { return std::string(enum_to_name(test.param)); });

TEST_P(SharedPrefixTasks, GiveTheSameSumsAndAnswersAsWithoutSharing) {
  expect_same(RoutingMode::kSegments, 2048, true);
}

TEST_P(SharedPrefixTasks, GiveTheSameWhereTheLastPromptTokenRoutes) {
  expect_same(RoutingMode::kLastPromptToken, 2048, GetParam() != Architecture::kSteppedMoe);
}

TEST_P(SharedPrefixTasks, GiveTheSameWhereContextsAreCut) {
  // Cut contexts begin at different places of the shots, so that almost none have anything in common.
  const auto [with, with_rows] = run(RoutingMode::kSegments, 120, true);
  const auto [without, without_rows] = run(RoutingMode::kSegments, 120, false);
  EXPECT_GT(with.tasks[0].counts.truncated, 0);
  for (size_t i = 0; i < with_rows.size(); ++i)
    expect_same_row(with_rows[i].value(), without_rows[i].value());
}

TEST_P(SharedPrefixTasks, AreNamedInTheResultsFile) {
  const auto json = to_json(run(RoutingMode::kSegments, 2048, true).first);
  EXPECT_EQ(json["context"]["shared_prefixes"], "on");
  EXPECT_EQ(json["tasks"]["choices"]["shared_prefixes"]["prefixes"], 2);
  EXPECT_GT(json["tasks"]["answers"]["shared_prefixes"]["spared_tokens"], 0);
}

}  // namespace
}  // namespace smoe
