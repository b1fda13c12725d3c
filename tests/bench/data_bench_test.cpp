#include "smoe/bench/data_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "smoe/core/error.h"
#include "smoe/core/json.h"
#include "smoe/data/tokenizer.h"
#include "temporary_folder.h"

namespace smoe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

std::filesystem::path golden_tokenizer(const std::string& name) {
  return std::filesystem::path(SMOE_SOURCE_DIR) / "tests/golden/tokenizers" / name;
}

TEST(TokenizingBench, CountsTheTokensOfEveryTokenizerOnAnyNumberOfThreads) {
  const TemporaryFolder folder;
  const std::vector<std::string> texts = {"One document.", "And another, of 12 words\nin two lines."};
  TokenizingBenchOptions options;
  options.inputs = {folder.path() / "text.jsonl"};
  std::ofstream file(options.inputs[0]);
  for (const std::string& text : texts) file << nlohmann::json{{"text", text}}.dump() << "\n";
  file.close();
  options.tokenizers = {golden_tokenizer("sentencepiece_bpe.model"), golden_tokenizer("qwen2")};
  options.threads = {1, 3};
  options.repetitions = 2;

  const SpeedReport report = run_tokenizing_bench(options);

  ASSERT_EQ(report.rows.size(), 4U);
  for (size_t i = 0; i < report.rows.size(); ++i) {
    const auto tokenizer = load_tokenizer(options.tokenizers[i / 2]);
    int64_t expected = 0;
    for (const std::string& text : texts) expected += std::ssize(tokenizer->encode(text));
    EXPECT_EQ(report.rows[i].unique_tokens, expected);
    EXPECT_EQ(report.rows[i].text_bytes, std::ssize(texts[0]) + std::ssize(texts[1]));
    EXPECT_EQ(report.rows[i].labels.at("threads"), i % 2 == 0 ? "1" : "3");
    EXPECT_EQ(report.rows[i].samples.all.size(), 2U);
  }
  EXPECT_THAT(data_table(report), AllOf(HasSubstr("qwen2"), HasSubstr("MB/s")));
}

LoadingBenchOptions small_loading(const TemporaryFolder& folder) {
  LoadingBenchOptions options;
  options.work_folder = folder.path();
  options.store_tokens = 100'000;
  options.sequence_length = 128;
  options.rows_per_step = 2;
  options.steps = 10;
  options.vocab_size = 100;
  options.repetitions = 1;
  return options;
}

TEST(LoadingBench, ReadsStreamAndPackedRowsAndLeavesNoFiles) {
  const TemporaryFolder folder;
  const SpeedReport report = run_loading_bench(small_loading(folder));
  ASSERT_EQ(report.rows.size(), 4U);
  for (const SpeedRow& row : report.rows) EXPECT_EQ(row.unique_tokens, 2 * 10 * 128);
  EXPECT_EQ(report.rows[3].labels,
            (std::map<std::string, std::string>{{"pages", "cold"}, {"sequences", "packed"}}));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  // No matrix product is measured here, so that none is reported.
  EXPECT_THAT(speed_json_lines(report), Not(HasSubstr("matmul_peak")));
}

TEST(LoadingBench, RefusesStoresThatHoldLessThanOneRow) {
  const TemporaryFolder folder;
  LoadingBenchOptions options = small_loading(folder);
  options.store_tokens = 40;
  options.sequence_length = 100'000;
  try {
    run_loading_bench(options);
    FAIL() << "no error";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("less than one row"), HasSubstr("100000")));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

SpeedRow loaded(const std::string& pages, int64_t tokens) {
  SpeedRow row;
  row.labels["pages"] = pages;
  row.unique_tokens = tokens;
  row.samples.all = {{1.0, 2.0}};
  return row;
}

TEST(LoadingBench, TheShareOfAStepIsThatOfTheSlowestWarmRow) {
  SpeedReport loading, training;
  loading.rows = {loaded("warm", 8000), loaded("warm", 4000), loaded("cold", 10)};
  training.rows = {loaded("", 20)};
  const LoadingShare share = loading_share(loading, training);
  EXPECT_EQ(share.loading_tokens_per_core_s, 2000.0);
  EXPECT_EQ(share.training_tokens_per_core_s, 10.0);
  EXPECT_EQ(share.share(), 0.005);
}

}  // namespace
}  // namespace smoe
