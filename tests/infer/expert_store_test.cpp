#include "smoe/infer/expert_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "infer/streaming_test_support.h"
#include "smoe/core/error.h"
#include "smoe/core/random.h"

namespace smoe {
namespace {

using testing::FaultyReader;
using ::testing::HasSubstr;
using testing::PackagedModel;
using testing::store_config;

ModelConfig config() { return testing::tiny_config(Architecture::kSteppedMoe); }

// The first value of an expert's gate matrix, as the model has it.
float expected_value(const Model& model, int64_t layer, int64_t expert) {
  const std::string name = fmt::format("layers.{}.routed_experts.gate_proj.weight", 2 + layer);
  for (const NamedParameter& parameter : model.parameters()) {
    if (parameter.name == name) return parameter.tensor[expert][0][0].item<float>();
  }
  throw std::logic_error(name);
}

// Walks through the layers of one pass, in parts where they are larger than the slots, and compares every
// view.
void walk(ExpertStore& store, const Model& model, const ExpertDemand& demand) {
  const auto delivery = store.begin(demand);
  for (size_t layer = 0; layer < demand.experts_of_layer.size(); ++layer) {
    const auto& all = demand.experts_of_layer[layer];
    for (int64_t begin = 0; begin < std::ssize(all); begin += store.most_experts()) {
      const int64_t end = std::min(std::ssize(all), begin + store.most_experts());
      const std::vector<int64_t> experts(all.begin() + begin, all.begin() + end);
      const auto views = delivery->wait(static_cast<int64_t>(layer), experts);
      ASSERT_EQ(views.size(), experts.size());
      for (size_t i = 0; i < experts.size(); ++i) {
        ASSERT_EQ(*static_cast<const float*>(views[i].gate_hD),
                  expected_value(model, static_cast<int64_t>(layer), experts[i]));
      }
    }
  }
}

ExpertDemand random_demand(SplitMix64& random, int64_t count) {
  ExpertDemand demand{std::vector<std::vector<int64_t>>(3), true};
  for (auto& experts : demand.experts_of_layer) {
    for (int64_t expert = 0; expert < 8; ++expert) {
      const auto wanted = static_cast<uint64_t>(count - std::ssize(experts));
      if (random.below(static_cast<uint64_t>(8 - expert)) < wanted) experts.push_back(expert);
    }
  }
  return demand;
}

class StoreTest : public ::testing::TestWithParam<std::tuple<ExpertBackend, int64_t>> {};

TEST_P(StoreTest, DeliversTheRightExpertsForAnyNumberOfSlots) {
  const auto [backend, num_slots] = GetParam();
  const PackagedModel packaged(config());
  ExpertStore store(StreamingPackage(packaged.path()), num_slots, store_config(backend));
  SplitMix64 random(5);
  for (int64_t round = 0; round < 60; ++round) {
    ExpertDemand demand = random_demand(random, 3);
    walk(store, packaged.model, demand);
    demand.is_new_choice = false;
    walk(store, packaged.model, demand);
  }
  EXPECT_EQ(store.statistics().num_choices, 60);
  EXPECT_EQ(store.statistics().num_forwards, 120);
}

INSTANTIATE_TEST_SUITE_P(Slots, StoreTest,
                         ::testing::Combine(::testing::ValuesIn(testing::kAllBackends),
                                            ::testing::Values(3, 4, 9, 12, 24)),
                         [](const auto& each) {
                           return fmt::format("{}_{}", enum_to_name(std::get<0>(each.param)),
                                              std::get<1>(each.param));
                         });

TEST(ExpertStore, CountsHitsMissesAndBytes) {
  const PackagedModel packaged(config());
  ExpertStore store(StreamingPackage(packaged.path()), 9, store_config());
  const ExpertDemand first{{{0, 1}, {2}, {5, 6, 7}}, true};
  const ExpertDemand second{{{1, 2}, {2}, {5, 6, 7}}, true};
  walk(store, packaged.model, first);
  walk(store, packaged.model, {first.experts_of_layer, false});
  walk(store, packaged.model, second);
  const StreamingStatistics statistics = store.statistics();
  EXPECT_EQ(statistics.selected, 12);
  EXPECT_EQ(statistics.hits, 5);
  EXPECT_EQ(statistics.num_reads, 7);
  EXPECT_EQ(statistics.bytes_read, 7 * store.slot_bytes() / 9);
  ASSERT_EQ(store.refreshes().size(), 2U);
  EXPECT_EQ(store.refreshes()[0].num_forwards, 2);
  EXPECT_EQ(store.refreshes()[1].bytes_read, store.slot_bytes() / 9);
}

TEST(ExpertStore, ReadsNothingBetweenRefreshesWhenTheChoiceFits) {
  const PackagedModel packaged(config());
  ExpertStore store(StreamingPackage(packaged.path()), 9, store_config());
  SplitMix64 random(1);
  ExpertDemand demand = random_demand(random, 3);
  walk(store, packaged.model, demand);
  demand.is_new_choice = false;
  store.reset_statistics();
  for (int64_t round = 0; round < 5; ++round) walk(store, packaged.model, demand);
  EXPECT_EQ(store.statistics().num_reads, 0);
}

TEST(ExpertStore, TriesAgainAfterAReadError) {
  const PackagedModel packaged(config());
  const StreamingPackage package(packaged.path());
  auto reader =
      std::make_unique<FaultyReader>(make_block_reader(package.experts_path(), store_config().reader));
  reader->fail(package.block(1, 4).offset, 2);
  ExpertStore store(package, 9, store_config(), std::move(reader));
  walk(store, packaged.model, {{{0}, {3, 4}, {1}}, true});
  EXPECT_EQ(store.statistics().num_retries, 2);
}

TEST(ExpertStore, FailsOnlyTheRequestWhoseReadKeepsFailing) {
  for (const ExpertBackend backend : testing::kAllBackends) {
    const PackagedModel packaged(config());
    const StreamingPackage package(packaged.path());
    auto reader = std::make_unique<FaultyReader>(
        make_block_reader(package.experts_path(), store_config(backend).reader));
    reader->fail(package.block(1, 4).offset, 3);
    ExpertStore store(package, 9, store_config(backend), std::move(reader));
    const ExpertDemand demand{{{0}, {3, 4}, {1}}, true};
    try {
      walk(store, packaged.model, demand);
      FAIL();
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), HasSubstr("expert 4 of MoE layer 1"));
      EXPECT_THAT(error.what(), HasSubstr("3 tries"));
      EXPECT_THAT(error.what(), HasSubstr("Input/output error"));
    }
    walk(store, packaged.model, demand);
  }
}

TEST(ExpertStore, FindsADamagedExpertWhenItIsRead) {
  const PackagedModel packaged(config());
  const StreamingPackage package(packaged.path());
  {
    std::fstream file(package.experts_path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(package.block(2, 1).offset + 17);
    file.put('x');
  }
  EXPECT_THROW(package.verify_experts(), CheckpointError);
  for (const ExpertBackend backend : testing::kAllBackends) {
    ExpertStore store(package, 9, store_config(backend));
    walk(store, packaged.model, {{{0}, {1}, {0}}, true});
    try {
      walk(store, packaged.model, {{{0}, {1}, {1}}, true});
      FAIL();
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), HasSubstr("expert 1 of MoE layer 2"));
      EXPECT_THAT(error.what(), HasSubstr("checksum"));
    }
  }
}

TEST(ExpertStore, NamesTheLeastMemoryForABudget) {
  const PackagedModel packaged(config());
  const StreamingPackage package(packaged.path());
  const int64_t block = package.layout().block_bytes;
  EXPECT_EQ(slots_for_memory(package, 6 * block), 6);
  EXPECT_EQ(slots_for_memory(package, int64_t{1} << 40), 24);
  try {
    slots_for_memory(package, 6 * block - 1);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr(fmt::format("at least {:.2f} MiB", 6.0 * static_cast<double>(block) / 1048576.0)));
  }
}

TEST(ExpertStore, DeliversInPartsALayerThatNeedsMoreExpertsThanThereAreSlots) {
  for (const ExpertBackend backend : testing::kAllBackends) {
    const PackagedModel packaged(config());
    for (const int64_t num_slots : {1, 2, 3, 5, 10}) {
      ExpertStore store(StreamingPackage(packaged.path()), num_slots, store_config(backend));
      SplitMix64 random(static_cast<uint64_t>(num_slots));
      for (int64_t round = 0; round < 30; ++round) {
        ExpertDemand demand = random_demand(random, 1 + round % 8);
        walk(store, packaged.model, demand);
        demand.is_new_choice = false;
        walk(store, packaged.model, demand);
      }
    }
  }
}

TEST(ExpertStore, ServesSeveralThreads) {
  for (const ExpertBackend backend : testing::kAllBackends) {
    const PackagedModel packaged(config());
    ExpertStore store(StreamingPackage(packaged.path()), 7, store_config(backend));
    std::vector<std::thread> threads;
    for (uint64_t thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&, thread] {
        SplitMix64 random(thread);
        for (int64_t round = 0; round < 40; ++round) {
          const ExpertDemand demand = random_demand(random, 3);
          // Some passes end in the middle, as those of failed requests do.
          if (round % 5 == 0) {
            store.begin(demand)->wait(0, demand.experts_of_layer[0]);
          } else {
            walk(store, packaged.model, demand);
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(store.statistics().num_forwards, 160);
  }
}

}  // namespace
}  // namespace smoe
