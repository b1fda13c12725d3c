#include "smoe/data/training_data.h"

#include <map>
#include <set>
#include <thread>

#include "data_test_support.h"
#include "smoe/core/random.h"
#include "smoe/routing/segment_runs.h"

namespace smoe {
namespace {

using test::counting;
using test::error_of;
using test::kTestHash;
using test::TemporaryFolder;
using test::write_store;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two sources: "a" with tokens 2..402 in one document, "b" with 500..701.
DataConfig two_sources(const TemporaryFolder& folder) {
  write_store(folder / "a", {counting(2, 401)});
  write_store(folder / "b", {counting(500, 201)});
  DataConfig config;
  config.train = {{"a", (folder / "a").string(), 3.0}, {"b", (folder / "b").string(), 1.0}};
  config.sequence_length = 8;
  return config;
}

// Documents of random lengths (some longer than a row) whose tokens count up through the whole store, so that
// every token says where it comes from.
std::vector<std::vector<int32_t>> random_documents(uint64_t seed) {
  SplitMix64 random(seed);
  std::vector<std::vector<int32_t>> documents;
  int32_t next = 2;
  for (int i = 0; i < 60; ++i) {
    documents.push_back(counting(next, static_cast<int64_t>(random.below(40)) + 1));
    next += static_cast<int32_t>(documents.back().size());
  }
  return documents;
}

DataConfig packed_source(const TemporaryFolder& folder, const std::vector<std::vector<int32_t>>& documents) {
  write_store(folder / "p", documents, 4000);
  DataConfig config;
  config.train = {{"p", (folder / "p").string(), 1.0}};
  config.sequence_length = 16;
  config.sequences = SequenceKind::kPacked;
  return config;
}

bool equal(const Batch& a, const Batch& b) {
  const auto same = [](const at::Tensor& x, const at::Tensor& y) {
    return x.defined() == y.defined() && (!x.defined() || at::equal(x, y));
  };
  return same(a.tokens_BT, b.tokens_BT) && same(a.targets_BT, b.targets_BT) &&
         same(a.loss_mask_BT, b.loss_mask_BT) && same(a.documents_BT, b.documents_BT) &&
         same(a.positions_BT, b.positions_BT) && a.sources == b.sources;
}

int64_t at(const at::Tensor& tensor_BT, int64_t row, int64_t token) {
  return tensor_BT[row][token].item<int64_t>();
}

TEST(DataConfig, NamesOfSourcesAreGivenAndDifferWithinAList) {
  const auto read = [](const std::string& yaml) { config_from_yaml<DataConfig>(yaml, "data.yaml"); };
  read("{train: [{name: a, path: x}, {name: b, path: y}], validation: [{name: a, path: z}]}");
  const auto twice = [&] { read("train: [{name: a, path: x}, {name: a, path: y}]"); };
  EXPECT_THAT(error_of<ConfigError>(twice),
              ::testing::AllOf(::testing::HasSubstr("train.1.name"),
                               ::testing::HasSubstr("\"a\" is the name of an earlier source")));
  const auto none = [&] { read("validation: [{path: x}]"); };
  EXPECT_THAT(error_of<ConfigError>(none),
              ::testing::AllOf(::testing::HasSubstr("validation.0.name"), ::testing::HasSubstr("is empty")));
  const auto mean = [&] { read("validation: [{name: mean, path: x}]"); };
  EXPECT_THAT(error_of<ConfigError>(mean), ::testing::AllOf(::testing::HasSubstr("validation.0.name"),
                                                            ::testing::HasSubstr("mean over all sources")));
}

TEST(TrainingData, CutsTheStreamIntoRowsWithShiftedTargets) {
  const TemporaryFolder folder;
  const TrainingData data(two_sources(folder), kTestHash, 1000);
  EXPECT_THAT(data.rows_per_epoch(), ElementsAre(50, 25));
  EXPECT_THAT(data.source_tokens(), ElementsAre(401, 201));
  const Batch batch = data.rows(0, 40);
  EXPECT_EQ(batch.num_rows(), 40);
  EXPECT_EQ(batch.num_targets(), 40 * 8);
  EXPECT_FALSE(batch.documents_BT.defined());
  EXPECT_TRUE(at::equal(batch.targets_BT, batch.tokens_BT + 1)) << "the stores count up";
  for (int64_t row = 0; row < 40; ++row) {
    EXPECT_EQ((at(batch.tokens_BT, row, 0) - (batch.sources[row] == 0 ? 2 : 500)) % 8, 0)
        << "rows start at r * T";
  }
}

TEST(TrainingData, ReadsEveryRowOnceInEveryPassOfItsSource) {
  const TemporaryFolder folder;
  const TrainingData data(two_sources(folder), kTestHash, 1000);
  const Batch batch = data.rows(0, 2000);
  std::vector<std::vector<int64_t>> read(2);
  for (int64_t i = 0; i < 2000; ++i) {
    read[batch.sources[i]].push_back(at(batch.tokens_BT, i, 0));
  }
  EXPECT_NEAR(double(read[0].size()), 1500.0, 200.0);
  for (int64_t source = 0; source < 2; ++source) {
    const size_t rows = data.rows_per_epoch()[source];
    std::set<std::vector<int64_t>> orders;
    for (size_t pass = 0; (pass + 1) * rows <= read[source].size(); ++pass) {
      const std::vector<int64_t> order(read[source].begin() + pass * rows,
                                       read[source].begin() + (pass + 1) * rows);
      EXPECT_EQ(std::set<int64_t>(order.begin(), order.end()).size(), rows) << "pass " << pass;
      EXPECT_TRUE(orders.insert(order).second) << "pass " << pass << " repeats the order of an earlier one";
    }
    EXPECT_GE(orders.size(), 10);
  }
}

TEST(TrainingData, HasOneOrderHoweverItIsRead) {
  const TemporaryFolder folder;
  const DataConfig config = two_sources(folder);
  const TrainingData data(config, kTestHash, 1000);
  const Batch whole = data.rows(980, 100);  // crosses blocks of the mixture and passes of both sources
  for (const int64_t micro : {1, 7, 32, 64}) {
    const TrainingData other(config, kTestHash, 1000);
    for (int64_t at = 0; at < 100; at += micro) {
      const int64_t count = std::min<int64_t>(micro, 100 - at);
      const Batch piece = other.rows(980 + at, count);
      EXPECT_TRUE(at::equal(piece.tokens_BT, whole.tokens_BT.narrow(0, at, count)));
    }
  }
  std::vector<Batch> results(8);
  std::vector<std::thread> threads;
  for (Batch& result : results) {
    threads.emplace_back([&] { result = data.rows(980, 100); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const Batch& result : results) {
    EXPECT_TRUE(equal(result, whole));
  }
}

TEST(TrainingData, ReadsNoRowsAndFarRows) {
  const TemporaryFolder folder;
  const TrainingData data(two_sources(folder), kTestHash, 1000);
  EXPECT_EQ(data.rows(5, 0).num_rows(), 0);
  EXPECT_EQ(data.rows(int64_t{1} << 45, 3).num_rows(), 3);
}

TEST(TrainingData, GivesEveryTargetOfAPackedSourceOnceAPass) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const TemporaryFolder folder;
    const auto documents = random_documents(seed);
    const TrainingData data(packed_source(folder, documents), kTestHash, 4000);
    const Batch batch = data.rows(0, data.rows_per_epoch()[0]);
    std::multiset<int64_t> expected;
    for (const auto& document : documents) {
      expected.insert(document.begin() + 1, document.end());
    }
    std::multiset<int64_t> targets;
    for (int64_t row = 0; row < batch.num_rows(); ++row) {
      for (int64_t t = 0; t < 16; ++t) {
        if (batch.loss_mask_BT[row][t].item<bool>()) {
          targets.insert(at(batch.targets_BT, row, t));
        }
      }
    }
    EXPECT_EQ(targets, expected);
  }
}

TEST(TrainingData, KeepsPackedDocumentsApart) {
  const TemporaryFolder folder;
  const auto documents = random_documents(9);
  std::map<int64_t, int64_t> document_of;  // token id -> document
  for (size_t d = 0; d < documents.size(); ++d) {
    for (const int32_t id : documents[d]) {
      document_of[id] = static_cast<int64_t>(d);
    }
  }
  const TrainingData data(packed_source(folder, documents), kTestHash, 4000);
  const Batch batch = data.rows(0, data.rows_per_epoch()[0]);
  int64_t padded_rows = 0;
  for (int64_t row = 0; row < batch.num_rows(); ++row) {
    EXPECT_EQ(at(batch.documents_BT, row, 0), 0);
    for (int64_t t = 0; t < 16; ++t) {
      const bool is_new = t == 0 || at(batch.documents_BT, row, t) != at(batch.documents_BT, row, t - 1);
      EXPECT_EQ(at(batch.positions_BT, row, t), is_new ? 0 : at(batch.positions_BT, row, t - 1) + 1);
      if (t > 0 && is_new && batch.loss_mask_BT[row][t].item<bool>()) {
        EXPECT_EQ(at(batch.documents_BT, row, t), at(batch.documents_BT, row, t - 1) + 1);
      }
      if (batch.loss_mask_BT[row][t].item<bool>()) {
        const int64_t token = at(batch.tokens_BT, row, t);
        EXPECT_EQ(at(batch.targets_BT, row, t), token + 1);
        EXPECT_EQ(document_of[token], document_of[token + 1]) << "a target crosses documents";
        EXPECT_TRUE(is_new || token == at(batch.tokens_BT, row, t - 1) + 1);
      } else {
        EXPECT_EQ(at(batch.tokens_BT, row, t), 0);
        EXPECT_EQ(at(batch.documents_BT, row, t), kPaddingDocument);
        EXPECT_TRUE(is_new || !batch.loss_mask_BT[row][t - 1].item<bool>())
            << "padding is a document of its own";
        padded_rows += t == 15 ? 1 : 0;
      }
    }
  }
  EXPECT_GT(padded_rows, 0) << "the test needs some padding";
  for (const Segment& segment : batch_segments(batch, 4).segments) {
    EXPECT_NE(at(batch.documents_BT, segment.row, segment.begin), kPaddingDocument)
        << "padding routes itself";
  }
}

TEST(TrainingData, FingerprintChangesWithDataAndOrderOnly) {
  const TemporaryFolder folder;
  const DataConfig config = two_sources(folder);
  const auto fingerprint = [](const DataConfig& changed) {
    return TrainingData(changed, kTestHash, 1000).fingerprint();
  };
  const std::string original = fingerprint(config);
  EXPECT_EQ(fingerprint(config), original);
  DataConfig changed = config;
  changed.train[0].name = "renamed";
  changed.train[0].weight = 6.0;
  changed.train[1].weight = 2.0;
  EXPECT_EQ(fingerprint(changed), original) << "names are labels, and only ratios of weights count";

  std::set<std::string> all = {original};
  changed = config;
  changed.seed = 2;
  all.insert(fingerprint(changed));
  changed = config;
  changed.sequence_length = 9;
  all.insert(fingerprint(changed));
  changed = config;
  changed.sequences = SequenceKind::kPacked;
  all.insert(fingerprint(changed));
  changed = config;
  changed.train[0].weight = 3.1;
  all.insert(fingerprint(changed));
  changed = config;
  std::swap(changed.train[0], changed.train[1]);
  all.insert(fingerprint(changed));
  changed = config;
  changed.train.pop_back();
  all.insert(fingerprint(changed));
  std::vector<int32_t> other = counting(2, 401);
  other[200] = 7;
  write_store(folder / "a", {other});
  all.insert(fingerprint(config));
  other = counting(2, 401);
  write_store(folder / "a", {{other.begin(), other.begin() + 9}, {other.begin() + 9, other.end()}});
  all.insert(fingerprint(config));
  EXPECT_EQ(all.size(), 9);
}

TEST(TrainingData, RefusesWhatDoesNotFit) {
  const TemporaryFolder folder;
  DataConfig config = two_sources(folder);
  EXPECT_THAT(error_of([&] { TrainingData(config, std::string(64, 'c'), 1000); }),
              HasSubstr("another tokenizer"));
  EXPECT_THAT(error_of([&] { TrainingData(config, kTestHash, 900); }),
              HasSubstr("larger than the 900 entries"));
  config.sequence_length = 201;
  EXPECT_THAT(error_of([&] { TrainingData(config, kTestHash, 1000); }),
              HasSubstr("source 'b' has 201 tokens, less than one row (sequence_length 201 + 1)"));
  config.sequence_length = 200;
  EXPECT_THAT(TrainingData(config, kTestHash, 1000).rows_per_epoch(), ElementsAre(2, 1));
  config.train[1].path = (folder / "none").string();
  EXPECT_THAT(error_of([&] { TrainingData(config, kTestHash, 1000); }), HasSubstr("none.bin"));
  config.train.clear();
  EXPECT_THAT(error_of<ConfigError>([&] { TrainingData(config, kTestHash, 1000); }), HasSubstr("data.train"));
}

TEST(TrainingData, NamesAnIdOutsideTheVocabulary) {
  const TemporaryFolder folder;
  write_store(folder / "bad", {{5, 6, 2000, 7, 8}}, 1000);
  DataConfig config;
  config.train = {{"bad", (folder / "bad").string(), 1.0}};
  config.sequence_length = 4;
  const TrainingData data(config, kTestHash, 1000);
  EXPECT_THAT(error_of([&] { data.rows(0, 1); }),
              HasSubstr("bad.bin: token 2 is id 2000, outside the vocabulary"));
}

TEST(ValidationData, ScoresEveryTokenButTheFirstOnceInFileOrder) {
  const TemporaryFolder folder;
  DataConfig config = two_sources(folder);
  config.sequence_length = 7;
  const ValidationData data(config.train[1], config, kTestHash, 1000);
  ASSERT_EQ(data.num_rows(), 29);  // 200 targets
  EXPECT_DOUBLE_EQ(data.bytes_per_token(), 4.0);
  const Batch batch = data.rows(0, 29);
  EXPECT_EQ(batch.num_targets(), 200);
  const at::Tensor scored = batch.targets_BT.masked_select(batch.loss_mask_BT);
  EXPECT_TRUE(at::equal(scored, at::arange(501, 701, at::kLong)));
  EXPECT_EQ(batch.loss_mask_BT[28].sum().item<int64_t>(), 4);
  EXPECT_EQ(at(batch.tokens_BT, 28, 4), 0) << "padding";
  EXPECT_TRUE(equal(data.rows(28, 1), data.rows(28, 1)));
}

TEST(ValidationData, PacksInFileOrder) {
  const TemporaryFolder folder;
  const auto documents = random_documents(3);
  const DataConfig config = packed_source(folder, documents);
  const ValidationData data(config.train[0], config, kTestHash, 4000);
  const Batch batch = data.rows(0, data.num_rows());
  std::vector<int64_t> expected;
  for (const auto& document : documents) {
    expected.insert(expected.end(), document.begin() + 1, document.end());
  }
  const at::Tensor scored = batch.targets_BT.masked_select(batch.loss_mask_BT);
  EXPECT_TRUE(at::equal(scored, at::tensor(expected, at::kLong)));
}

TEST(ValidationData, TakesASourceShorterThanOneRow) {
  const TemporaryFolder folder;
  write_store(folder / "v", {counting(2, 4)});
  DataConfig config;
  config.sequence_length = 64;
  const ValidationData data({"v", (folder / "v").string(), 1.0}, config, kTestHash, 1000);
  EXPECT_EQ(data.num_rows(), 1);
  EXPECT_EQ(data.rows(0, 1).num_targets(), 3);
}

}  // namespace
}  // namespace smoe
