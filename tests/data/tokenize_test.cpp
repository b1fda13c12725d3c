#include "smoe/data/tokenize.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "data_test_support.h"
#include "smoe/core/random.h"
#include "smoe/data/ordered_pipeline.h"

namespace smoe {
namespace {

using test::ByteTokenizer;
using test::error_of;
using test::TemporaryFolder;
using test::write_text;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TokenizeOptions options_for(const TemporaryFolder& folder, std::filesystem::path input, int64_t workers = 2) {
  TokenizeOptions options;
  options.inputs = {std::move(input)};
  options.output = folder / "out";
  options.num_workers = workers;
  return options;
}

TEST(Tokenize, EndsEveryDocumentWithEosAndLeavesEmptyOnesOut) {
  const TemporaryFolder folder;
  const auto input = write_text(folder / "a.jsonl", "{\"text\":\"ab\"}\n{\"text\":\"\"}\n{\"text\":\"é\"}\n");
  const TokenizeResult result = tokenize_files(options_for(folder, input), ByteTokenizer());
  EXPECT_EQ(result.empty_documents, 1);
  EXPECT_EQ(result.info.documents, 2);
  EXPECT_EQ(result.info.tokens, 6);
  EXPECT_EQ(result.info.text_bytes, 4);
  const TokenStore store(folder / "out");
  EXPECT_NO_THROW(verify_token_store(store));
  EXPECT_THAT(store.dataset.document(0), ElementsAre('a' + 2, 'b' + 2, 1));
  EXPECT_THAT(store.dataset.document(1), ElementsAre(0xC3 + 2, 0xA9 + 2, 1));
  EXPECT_EQ(store.info.tokenizer_hash, test::kTestHash);
}

TEST(Tokenize, GivesTheSameBytesForAnyNumberOfWorkers) {
  const TemporaryFolder folder;
  SplitMix64 random(7);
  std::string lines;
  for (int i = 0; i < 4000; ++i) {
    lines += fmt::format("{{\"text\": \"{} {}\"}}\n", i, std::string(random.below(2000), 'a' + char(i % 26)));
  }
  const auto input = write_text(folder / "a.jsonl", lines);
  std::vector<std::string> stores;
  for (const int64_t workers : {1, 2, 3, 7}) {
    TokenizeOptions options = options_for(folder, input, workers);
    options.output = folder / fmt::format("out{}", workers);
    tokenize_files(options, ByteTokenizer());
    std::string all;
    for (const char* suffix : {".bin", ".idx", ".json"}) {
      all += read_file(with_suffix(options.output, suffix));
    }
    stores.push_back(std::move(all));
  }
  EXPECT_EQ(stores[0], stores[1]);
  EXPECT_EQ(stores[0], stores[2]);
  EXPECT_EQ(stores[0], stores[3]);
}

TEST(Tokenize, ReportsTheFirstBadLineAndLeavesNoStore) {
  const TemporaryFolder folder;
  std::string lines;
  for (int i = 0; i < 3000; ++i) {
    lines += i == 1500 || i == 2900 ? "{bad}\n" : "{\"text\": \"" + std::string(1000, 'x') + "\"}\n";
  }
  const auto input = write_text(folder / "a.jsonl", lines);
  for (int repeat = 0; repeat < 5; ++repeat) {
    EXPECT_THAT(error_of([&] { tokenize_files(options_for(folder, input, 3), ByteTokenizer()); }),
                HasSubstr("a.jsonl:1501:2: not valid JSON"));
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1)
      << "only the input is left";
}

TEST(Tokenize, OverwritesOnlyWhenAllowed) {
  const TemporaryFolder folder;
  const auto input = write_text(folder / "a.txt", "text");
  TokenizeOptions options = options_for(folder, input);
  tokenize_files(options, ByteTokenizer());
  EXPECT_THAT(error_of([&] { tokenize_files(options, ByteTokenizer()); }),
              HasSubstr("out.bin: exists already"));
  write_text(folder / "a.txt", "longer text");
  options.overwrite = true;
  EXPECT_EQ(tokenize_files(options, ByteTokenizer()).info.tokens, 12);
  EXPECT_NO_THROW(verify_token_store(TokenStore(folder / "out")));
}

TEST(Tokenize, NeedsAnEosTokenAWorkerAndSomeText) {
  const TemporaryFolder folder;
  const auto input = write_text(folder / "a.jsonl", "{\"text\":\"\"}\n");
  EXPECT_THAT(error_of([&] { tokenize_files(options_for(folder, input), ByteTokenizer(false)); }),
              HasSubstr("no end-of-text token"));
  EXPECT_THAT(error_of<ConfigError>([&] { tokenize_files(options_for(folder, input, 0), ByteTokenizer()); }),
              HasSubstr("workers: 0 is not allowed"));
  EXPECT_THAT(error_of([&] { tokenize_files(options_for(folder, input), ByteTokenizer()); }),
              HasSubstr("none of the 1 documents of the input has text"));
}

TEST(OrderedPipeline, KeepsTheOrderAndBoundsWhatIsInFlight) {
  std::atomic<int> produced = 0;
  std::atomic<int> consumed = 0;
  int most_in_flight = 0;
  std::vector<int> results;
  OrderedPipeline<int, int>::run(
      3, [&] { return produced < 500 ? std::optional(produced++) : std::nullopt; },
      [](int&& value) {
        std::this_thread::sleep_for(std::chrono::microseconds((value * 7919) % 300));
        return 2 * value;
      },
      [&](int&& value) {
        most_in_flight = std::max(most_in_flight, produced - consumed);
        results.push_back(value);
        ++consumed;
      });
  ASSERT_EQ(results.size(), 500);
  for (int i = 0; i < 500; ++i) {
    EXPECT_EQ(results[i], 2 * i);
  }
  EXPECT_LE(most_in_flight, 4 * 3 + 1);
}

TEST(OrderedPipeline, RethrowsTheFirstErrorInOrderAfterTheResultsBeforeIt) {
  std::vector<int> results;
  const auto run = [&](int fail_produce, int fail_transform, int fail_consume) {
    results.clear();
    int next = 0;
    OrderedPipeline<int, int>::run(
        3,
        [&] {
          if (next == fail_produce) throw DataError("produce");
          return std::optional(next++);
        },
        [&](int&& value) {
          if (value >= fail_transform) throw DataError("transform " + std::to_string(value));
          return value;
        },
        [&](int&& value) {
          if (value == fail_consume) throw DataError("consume");
          results.push_back(value);
        });
  };
  EXPECT_EQ(error_of([&] { run(10, 100, 100); }), "produce");
  EXPECT_EQ(results.size(), 10);
  EXPECT_EQ(error_of([&] { run(100, 20, 100); }), "transform 20");
  EXPECT_EQ(results.size(), 20);
  EXPECT_EQ(error_of([&] { run(100, 100, 30); }), "consume");
  EXPECT_EQ(results.size(), 30);
}

}  // namespace
}  // namespace smoe
