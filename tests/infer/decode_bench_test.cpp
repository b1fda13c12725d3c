// The measurement on a tiny model: what it reports is complete and consistent. Times themselves are not
// tested.
#include "smoe/infer/decode_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "infer/streaming_test_support.h"
#include "smoe/core/json.h"
#include "temporary_folder.h"

namespace smoe {
namespace {

DecodeBenchReport tiny_report(const std::filesystem::path& folder, int64_t memory_limit) {
  DecodeBenchOptions options;
  options.model = testing::tiny_config(Architecture::kSteppedMoe);
  options.work_folder = folder;
  options.budgets = {"two"};
  options.segment_lengths = {4};
  options.batch_sizes = {1, 3};
  options.memory_limits = {memory_limit};
  options.store = testing::store_config();
  options.num_tokens = 8;
  options.vanilla_tokens = 16;
  return run_decode_bench(options, [](const std::string&) {});
}

// Bytes of the matrices that one token at budget "two" (k = 3 of 8) multiplies with, head included.
double expected_active_bytes() {
  const Model model = testing::tiny_model(testing::tiny_config(Architecture::kSteppedMoe));
  double values = static_cast<double>(model.output_weight().numel());
  for (const NamedParameter& parameter : model.parameters()) {
    if (parameter.kind != ParameterKind::kMatrix) continue;
    const bool routed = parameter.name.find("routed_experts") != std::string::npos;
    values += static_cast<double>(parameter.tensor.numel()) * (routed ? 3.0 / 8.0 : 1.0);
  }
  return 4.0 * values;
}

TEST(DecodeBench, ReportsEveryModelInMemoryAndStreamed) {
  const testing::TemporaryFolder folder;
  const DecodeBenchReport report = tiny_report(folder.path(), int64_t{1} << 20);
  std::vector<std::string> names;
  for (const DecodeBenchRow& row : report.rows) {
    names.push_back(
        fmt::format("{} {} {}", row.model, row.batch, row.slot_bytes > 0 ? "streamed" : "in memory"));
    EXPECT_GT(row.ms_per_token, 0);
    EXPECT_GT(row.dense_ms_per_token, 0);
    EXPECT_GE(row.num_tokens, 8);
    EXPECT_GT(row.memory_bytes_per_s, 1e8);
    EXPECT_EQ(row.times_stepped > 0, row.model.starts_with("stock"));
    if (row.model != "dense" && row.model != "vanilla") {
      EXPECT_NEAR(row.active_bytes, expected_active_bytes(), 1.0);
    }
    if (row.slot_bytes == 0) continue;
    ASSERT_TRUE(row.predicted_ms && row.predicted_stall_ms);
    // Everything fits: after the first tokens nothing is read.
    EXPECT_LE(*row.predicted_stall_ms, row.bound_ms + 1e-9);
    EXPECT_NEAR(*row.predicted_ms, row.ms_per_token - row.stall_ms + *row.predicted_stall_ms, 1e-6);
  }
  EXPECT_THAT(names, ::testing::ElementsAre(
                         "dense 1 in memory", "stepped 1 in memory", "stock gather 1 in memory",
                         "stock gather once 1 in memory", "stock loop 1 in memory", "dense 3 in memory",
                         "stepped 3 in memory", "stepped 1 streamed", "vanilla 1 streamed"));
}

TEST(DecodeBench, PredictsNothingWhereAChoiceDoesNotFit) {
  const testing::TemporaryFolder folder;
  const testing::PackagedModel packaged(testing::tiny_config(Architecture::kSteppedMoe));
  const int64_t memory = 6 * StreamingPackage(packaged.path()).layout().block_bytes;
  const DecodeBenchReport report = tiny_report(folder.path(), memory);
  for (const DecodeBenchRow& row : report.rows) {
    if (row.model != "stepped" || row.slot_bytes == 0) continue;
    EXPECT_EQ(row.slot_bytes, memory);
    EXPECT_FALSE(row.predicted_ms);
    EXPECT_GT(row.bytes_per_token, 0);
    EXPECT_GT(row.bound_ms, 0);
  }
}

TEST(DecodeBench, WritesOneJsonObjectARow) {
  const testing::TemporaryFolder folder;
  const DecodeBenchReport report = tiny_report(folder.path(), 0);
  std::istringstream lines(decode_bench_json_lines(report));
  std::string line;
  size_t count = 0;
  for (; std::getline(lines, line); ++count) {
    const nlohmann::json row = parse_json(line, "row");
    EXPECT_EQ(row.at("model"), report.rows[count].model);
    EXPECT_TRUE(row.contains("memory_share") && row.contains("predicted_ms"));
  }
  EXPECT_EQ(count, report.rows.size());
  EXPECT_THAT(decode_bench_table(report), ::testing::HasSubstr("% memory"));
}

}  // namespace
}  // namespace smoe
