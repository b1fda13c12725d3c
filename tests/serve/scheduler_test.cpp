// Failures of forward passes: the request that caused one fails alone.
#include "smoe/serve/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "infer/infer_test_support.h"
#include "infer/streaming_test_support.h"
#include "smoe/core/error.h"

namespace smoe {
namespace {

using ::testing::HasSubstr;

// A provider that fails whenever a pass needs one of the experts named.
class BrokenProvider final : public ExpertProvider {
 public:
  BrokenProvider(std::shared_ptr<ExpertProvider> inner, std::function<bool(const ExpertDemand&)> fails)
      : inner_(std::move(inner)), fails_(std::move(fails)) {}
  std::unique_ptr<ExpertDelivery> begin(const ExpertDemand& demand) override {
    if (fails_(demand)) throw DataError("the disk is broken");
    return inner_->begin(demand);
  }

 private:
  std::shared_ptr<ExpertProvider> inner_;
  std::function<bool(const ExpertDemand&)> fails_;
};

struct Answer {
  std::string text;
  std::string error;
};

Answer wait_for(Ticket& ticket) {
  Answer answer;
  while (true) {
    const std::optional<ServeEvent> event = ticket.next(std::chrono::seconds(30));
    if (!event) return {answer.text, "nothing came"};
    answer.text += event->text;
    if (event->error) answer.error = event->error->what();
    if (event->is_last()) return answer;
  }
}

class SchedulerTest : public ::testing::Test {
 protected:
  SchedulerTest() {
    StreamingModel streaming = open_streaming_model(packaged_.options(24));
    served_ = std::make_unique<ServedModel>(
        ServedModel{.name = "tiny",
                    .model = std::move(streaming.model),
                    .tokenizer = std::make_unique<testing::PieceTokenizer>(testing::word_tokenizer()),
                    .renderer = nullptr,
                    .experts = streaming.experts,
                    .session = {}});
  }
  // The largest demand of a layer decides: a pass at k = 6 needs more than 3 experts in some layer.
  void break_when(std::function<bool(const ExpertDemand&)> fails) {
    served_->model.set_expert_provider(std::make_shared<BrokenProvider>(served_->experts, std::move(fails)));
  }
  GenerationRequest request(int64_t budget, int64_t seed) const {
    return testing::greedy_request(testing::random_prompt(5, seed), budget, 4, RoutingMode::kSegments, 14);
  }
  std::string expected(int64_t budget, int64_t seed) const {
    return Generator(packaged_.model, *served_->tokenizer).generate(request(budget, seed)).text;
  }

  const testing::PackagedModel packaged_{testing::tiny_config(Architecture::kSteppedMoe)};
  std::unique_ptr<ServedModel> served_;
  ServerMetrics metrics_;
};

int64_t largest_layer(const ExpertDemand& demand) {
  size_t most = 0;
  for (const auto& experts : demand.experts_of_layer) most = std::max(most, experts.size());
  return static_cast<int64_t>(most);
}

TEST_F(SchedulerTest, OnlyTheRequestThatCannotBeComputedFails) {
  // k = 6 asks for 6 experts of each layer by itself; k = 1 never does alone.
  break_when([](const ExpertDemand& demand) { return largest_layer(demand) >= 6; });
  Scheduler scheduler(*served_, {}, metrics_);
  const auto first = scheduler.submit("one", request(0, 1));
  const auto broken = scheduler.submit("three", request(2, 2));
  const auto second = scheduler.submit("one", request(0, 3));
  EXPECT_THAT(wait_for(*broken).error, HasSubstr("the disk is broken"));
  for (const auto& [ticket, seed] : {std::pair{first, 1}, std::pair{second, 3}}) {
    const Answer answer = wait_for(*ticket);
    EXPECT_EQ(answer.error, "");
    EXPECT_EQ(answer.text, expected(0, seed));
  }
  // And the scheduler goes on.
  EXPECT_EQ(wait_for(*scheduler.submit("one", request(0, 4))).text, expected(0, 4));
}

TEST_F(SchedulerTest, AFailureInTheMiddleIsSurvivedWithoutRepeatingText) {
  int64_t num_passes = 0;
  break_when([&](const ExpertDemand&) { return ++num_passes == 6; });
  Scheduler scheduler(*served_, {}, metrics_);
  std::vector<std::shared_ptr<Ticket>> tickets;
  for (int64_t seed = 0; seed < 3; ++seed) tickets.push_back(scheduler.submit("one", request(0, seed)));
  int64_t num_failed = 0;
  for (int64_t seed = 0; seed < 3; ++seed) {
    const Answer answer = wait_for(*tickets[static_cast<size_t>(seed)]);
    if (!answer.error.empty()) {
      ++num_failed;
    } else {
      EXPECT_EQ(answer.text, expected(0, seed));
    }
  }
  // A pass that held a single request counts as its own failure.
  EXPECT_LE(num_failed, 1);
}

TEST_F(SchedulerTest, AReadErrorFailsWithItsPlaceAndTheNextRequestWorks) {
  auto reader = std::make_unique<testing::FaultyReader>(
      make_block_reader(StreamingPackage(packaged_.path()).experts_path(), testing::store_config().reader));
  testing::FaultyReader& faulty = *reader;
  const StreamingPackage package(packaged_.path());
  auto store = std::make_shared<ExpertStore>(package, 24, testing::store_config(), std::move(reader));
  served_->experts = store;
  served_->model.set_expert_provider(store);
  for (int64_t expert = 0; expert < 8; ++expert) faulty.fail(package.block(1, expert).offset, 3);
  Scheduler scheduler(*served_, {}, metrics_);
  EXPECT_THAT(wait_for(*scheduler.submit("one", request(0, 1))).error, HasSubstr("expert"));
  for (int64_t expert = 0; expert < 8; ++expert) faulty.fail(package.block(1, expert).offset, 0);
  EXPECT_EQ(wait_for(*scheduler.submit("one", request(0, 1))).text, expected(0, 1));
  EXPECT_THAT(metrics_.text(store.get()), HasSubstr("smoe_expert_store_hit_rate"));
}

TEST_F(SchedulerTest, ABlockThatCannotBeReadCostsOnlyTheRequestsThatNeedIt) {
  const StreamingPackage package(packaged_.path());
  int64_t num_failed = 0, num_answered = 0;
  for (int64_t broken = 0; broken < 8; ++broken) {
    auto reader = std::make_unique<testing::FaultyReader>(
        make_block_reader(package.experts_path(), testing::store_config().reader));
    reader->fail(package.block(2, broken).offset, int64_t{1} << 40);
    served_->model.set_expert_provider(
        std::make_shared<ExpertStore>(package, 24, testing::store_config(), std::move(reader)));
    Scheduler scheduler(*served_, {}, metrics_);
    std::vector<std::shared_ptr<Ticket>> tickets;
    for (int64_t seed = 0; seed < 5; ++seed) tickets.push_back(scheduler.submit("one", request(0, seed)));
    for (int64_t seed = 0; seed < 5; ++seed) {
      const GenerationResult whole =
          Generator(packaged_.model, *served_->tokenizer).generate(request(0, seed));
      const bool fails =
          testing::first_use_of_expert(packaged_.model, request(0, seed), whole.ids, 2, broken) >= 0;
      const Answer answer = wait_for(*tickets[static_cast<size_t>(seed)]);
      EXPECT_EQ(!answer.error.empty(), fails) << broken << " " << seed << " " << answer.error;
      if (!fails) {
        EXPECT_EQ(answer.text, whole.text);
      }
      ++(fails ? num_failed : num_answered);
    }
  }
  EXPECT_GT(num_failed, 0);
  EXPECT_GT(num_answered, 0);
}

TEST_F(SchedulerTest, ARequestThatTheSessionRefusesIsTheClientsFault) {
  Scheduler scheduler(*served_, {}, metrics_);
  GenerationRequest bad = request(0, 1);
  bad.prompt = {1000};
  const std::optional<ServeEvent> event = scheduler.submit("one", bad)->next(std::chrono::seconds(30));
  ASSERT_TRUE(event && event->error);
  EXPECT_EQ(event->error->status(), 400);
}

TEST_F(SchedulerTest, RefusesAfterShutdown) {
  Scheduler scheduler(*served_, {}, metrics_);
  scheduler.shutdown(1);
  try {
    scheduler.submit("one", request(0, 1));
    FAIL() << "accepted";
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status(), 503);
  }
}

}  // namespace
}  // namespace smoe
