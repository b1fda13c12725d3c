// The streamed model against the resident one, bit for bit.
#include "smoe/infer/streaming_model.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "infer/infer_test_support.h"
#include "infer/streaming_test_support.h"
#include "smoe/core/error.h"
#include "smoe/infer/decode_batch.h"

namespace smoe {
namespace {

using testing::PackagedModel;
using testing::store_config;

// Logits of a prompt and of greedy tokens after it, in a row.
std::vector<at::Tensor> decode(const Model& model, int64_t budget, int64_t segment_length, int64_t num_tokens,
                               size_t num_rows = 2) {
  std::vector<std::vector<int32_t>> prompts = {{5, 17, 3, 40, 22}, {8, 1}};
  prompts.resize(num_rows);
  DecodeBatch batch(model);
  std::vector<at::Tensor> all;
  std::vector<DecodeRow> rows(num_rows);
  for (DecodeRow& row : rows) {
    row.budget = budget;
    row.routing.segment_length = segment_length;
    row.routing.selector_position = model.config().routing.selector_position;
  }
  all.push_back(batch.prefill(prompts, rows, 512));
  for (int64_t step = 0; step < num_tokens; ++step) {
    std::vector<int32_t> next;
    for (size_t row = 0; row < num_rows; ++row) {
      next.push_back(static_cast<int32_t>(all.back()[static_cast<int64_t>(row)].argmax().item<int64_t>()));
    }
    all.push_back(batch.decode(next));
  }
  return all;
}

void expect_equal(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected,
                  const std::string& label) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_TRUE(at::equal(found[i], expected[i])) << label << ", step " << i;
  }
}

// The model with its routed experts rounded as the package rounds them.
Model rounded_model(const ModelConfig& config, ExpertEncoding encoding) {
  Model model = testing::tiny_model(config);
  const at::NoGradGuard no_gradients;
  for (const NamedParameter& parameter : model.parameters()) {
    if (parameter.name.find("routed_experts") == std::string::npos) continue;
    at::Tensor tensor = parameter.tensor;
    if (encoding == ExpertEncoding::kBfloat16) {
      tensor.copy_(tensor.to(at::kBFloat16));
    } else if (encoding == ExpertEncoding::kInt8) {
      const at::Tensor scale = tensor.abs().amax(-1, true) / 127.0F;
      tensor.copy_(at::round(tensor / scale) * scale);
    }
  }
  return model;
}

class StreamingModelTest : public ::testing::TestWithParam<std::tuple<ExpertBackend, ExpertEncoding>> {
 protected:
  // Threads bring nothing to a tiny model but waiting for each other.
  void SetUp() override { at::set_num_threads(1); }
  void TearDown() override { at::set_num_threads(num_threads_); }

 private:
  int num_threads_ = at::get_num_threads();
};

TEST_P(StreamingModelTest, EqualsTheResidentModelBitForBit) {
  const auto [backend, encoding] = GetParam();
  for (const auto architecture : {Architecture::kSteppedMoe, Architecture::kVanillaMoe}) {
    const ModelConfig config = testing::tiny_config(architecture);
    const PackagedModel packaged(config, encoding);
    const Model resident = rounded_model(config, encoding);
    for (const int64_t num_slots : {8, 13, 24}) {
      const StreamingModel streaming =
          open_streaming_model(packaged.options(num_slots, store_config(backend)));
      for (int64_t budget = 0; budget < 3; ++budget) {
        for (const int64_t segment_length : {1, 4, 7}) {
          for (const size_t num_rows : {1, 2}) {
            expect_equal(decode(streaming.model, budget, segment_length, 12, num_rows),
                         decode(resident, budget, segment_length, 12, num_rows),
                         fmt::format("slots {}, budget {}, S {}, {} rows", num_slots, budget, segment_length,
                                     num_rows));
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, StreamingModelTest,
                         ::testing::Combine(::testing::ValuesIn(testing::kAllBackends),
                                            ::testing::Values(ExpertEncoding::kFloat32,
                                                              ExpertEncoding::kBfloat16,
                                                              ExpertEncoding::kInt8)),
                         [](const auto& each) {
                           return fmt::format("{}_{}", enum_to_name(std::get<0>(each.param)),
                                              enum_to_name(std::get<1>(each.param)));
                         });

// Large enough for the experts of a token to be dealt out to several threads.
TEST(StreamingModel, EqualsTheResidentModelOnSeveralThreads) {
  ModelConfig config = testing::tiny_config(Architecture::kSteppedMoe);
  config.dim = 160;
  config.expert_dim = 200;
  config.num_experts = 16;
  config.budgets = {{"large", 12}};
  const PackagedModel packaged(config);
  const StreamingModel streaming = open_streaming_model(packaged.options(20));
  const int num_threads = at::get_num_threads();
  at::set_num_threads(3);
  expect_equal(decode(streaming.model, 0, 4, 6), decode(packaged.model, 0, 4, 6), "3 threads");
  at::set_num_threads(num_threads);
}

// With a single row the choice comes before the dense layers of the token that begins a segment.
TEST(StreamingModel, FollowsEverySelectorPositionAndHead) {
  for (const SelectorPosition position : testing::kSelectorPositions) {
    ModelConfig config = testing::tiny_config(Architecture::kSteppedMoe);
    config.routing.selector_position = position;
    config.routing.mask_head = {MaskHeadKind::kMlp, 10, true};
    const PackagedModel packaged(config);
    const StreamingModel streaming = open_streaming_model(packaged.options(8));
    for (const size_t num_rows : {1, 2}) {
      expect_equal(decode(streaming.model, 1, 4, 12, num_rows), decode(packaged.model, 1, 4, 12, num_rows),
                   fmt::format("{}, {} rows", enum_to_name(position), num_rows));
    }
  }
}

TEST(StreamingModel, HoldsNoRoutedExpertsAmongItsParameters) {
  const PackagedModel packaged(testing::tiny_config(Architecture::kSteppedMoe));
  const StreamingModel streaming = open_streaming_model(packaged.options(8));
  for (const NamedParameter& parameter : streaming.model.parameters()) {
    EXPECT_EQ(parameter.name.find("routed_experts"), std::string::npos) << parameter.name;
  }
}

// A prompt of many segments needs all experts of a layer; 6 slots hold one choice of one layer.
TEST(StreamingModel, LongPromptsAndManyRowsNeedNoMoreSlotsThanOneChoice) {
  for (const auto architecture : {Architecture::kSteppedMoe, Architecture::kVanillaMoe}) {
    const PackagedModel packaged(testing::tiny_config(architecture));
    for (const int64_t num_slots : {6, 7}) {
      const StreamingModel streaming = open_streaming_model(packaged.options(num_slots));
      const auto run = [&](const Model& model) {
        std::vector<std::vector<int32_t>> prompts;
        std::vector<DecodeRow> rows;
        for (int64_t row = 0; row < 5; ++row) {
          prompts.emplace_back();
          for (int32_t i = 0; i < 30 - row; ++i) prompts.back().push_back((i * 7 + 3) % 61);
          rows.push_back({row % 3, {RoutingMode::kSegments, 1 + row, 0}});
        }
        DecodeBatch batch(model);
        std::vector<at::Tensor> all = {batch.prefill(prompts, rows, 2048)};
        for (int32_t step = 0; step < 8; ++step) all.push_back(batch.decode(std::vector<int32_t>(5, step)));
        return all;
      };
      expect_equal(run(streaming.model), run(packaged.model), fmt::format("{} slots", num_slots));
    }
  }
}

TEST(StreamingModel, GoesOnAfterAFailedForward) {
  const PackagedModel packaged(testing::tiny_config(Architecture::kSteppedMoe));
  StreamingModel streaming = open_streaming_model(packaged.options(8));
  const StreamingPackage package(packaged.path());
  ExpertStoreConfig config = store_config();
  config.max_retries = 0;
  auto reader =
      std::make_unique<testing::FaultyReader>(make_block_reader(package.experts_path(), config.reader));
  testing::FaultyReader& faulty = *reader;
  streaming.model.set_expert_provider(std::make_shared<ExpertStore>(package, 8, config, std::move(reader)));
  for (int64_t expert = 0; expert < 8; ++expert) faulty.fail(package.block(1, expert).offset, 1);
  EXPECT_THROW(decode(streaming.model, 2, 4, 6), DataError);
  for (int64_t expert = 0; expert < 8; ++expert) faulty.fail(package.block(1, expert).offset, 0);
  expect_equal(decode(streaming.model, 2, 4, 6), decode(packaged.model, 2, 4, 6), "after the failure");
}

// An expert of MoE layer 1 that can never be read ends the rows that choose it, and no others.
TEST(StreamingModel, AReadErrorEndsOnlyTheRequestsThatNeedTheExpert) {
  const PackagedModel packaged(testing::tiny_config(Architecture::kSteppedMoe));
  const StreamingPackage package(packaged.path());
  const testing::PieceTokenizer tokenizer = testing::word_tokenizer();
  std::vector<GenerationRequest> requests;
  for (int64_t i = 0; i < 8; ++i) {
    requests.push_back(
        testing::greedy_request(testing::random_prompt(5 + i, i), i % 2, 3, RoutingMode::kSegments, 12));
  }
  const std::vector<GenerationResult> expected = Generator(packaged.model, tokenizer).generate(requests);
  for (int64_t broken = 0; broken < 8; ++broken) {
    auto reader = std::make_unique<testing::FaultyReader>(
        make_block_reader(package.experts_path(), store_config().reader));
    reader->fail(package.block(1, broken).offset, int64_t{1} << 40);
    StreamingModel streaming = open_streaming_model(packaged.options(24));
    streaming.model.set_expert_provider(
        std::make_shared<ExpertStore>(package, 24, store_config(), std::move(reader)));
    // Few rows, so that some of the requests are admitted while others run.
    const std::vector<GenerationResult> found =
        Generator(streaming.model, tokenizer, {.max_rows = 5}).generate(requests);
    int64_t num_failed = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      // When the row needs the expert for the first time, by a forward over everything it would say.
      const int64_t first =
          testing::first_use_of_expert(packaged.model, requests[i], expected[i].ids, 1, broken);
      const bool fails = first >= 0;
      num_failed += fails ? 1 : 0;
      EXPECT_EQ(found[i].finish, fails ? FinishReason::kFailed : FinishReason::kLength) << broken << " " << i;
      const auto length = fails ? static_cast<size_t>(first) : expected[i].ids.size();
      EXPECT_EQ(found[i].ids,
                (std::vector<int32_t>(expected[i].ids.begin(),
                                      expected[i].ids.begin() + static_cast<std::ptrdiff_t>(length))));
      if (fails) {
        EXPECT_THAT(found[i].error, ::testing::HasSubstr(fmt::format("expert {} of MoE layer 1", broken)));
      }
    }
    EXPECT_LT(num_failed, 8) << broken;
  }
}

TEST(ParseByteCount, TakesUnitsAndNamesWhatItCannotRead) {
  EXPECT_EQ(parse_byte_count("256MiB"), 256 << 20);
  EXPECT_EQ(parse_byte_count("1.5GiB"), 3LL << 29);
  EXPECT_EQ(parse_byte_count("300MB"), 300000000);
  EXPECT_EQ(parse_byte_count("4096"), 4096);
  for (const char* text : {"", "MiB", "-1MiB", "0", "12 bananas", "1e30GiB"}) {
    try {
      parse_byte_count(text);
      FAIL() << text;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("512MiB"));
    }
  }
}

}  // namespace
}  // namespace smoe
