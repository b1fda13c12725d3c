// Checkpoints that several processes write: who writes what, and reading it back with another number of
// processes. The processes are threads here, and their store is a map.
#include "smoe/train/checkpoint_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

#include "smoe/core/error.h"
#include "smoe/model/checkpoint_reader.h"
#include "smoe/model/weight_files.h"
#include "smoe/train/checkpoint_writer.h"
#include "smoe/train/optimizer_state_reader.h"
#include "train_test_support.h"

namespace smoe {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

TensorList random_tensors(uint64_t seed) {
  at::manual_seed(seed);
  TensorList tensors;
  for (const auto& [name, shape] : std::vector<std::pair<std::string, std::vector<int64_t>>>{
           {"a", {7, 3}}, {"b", {2}}, {"c", {5, 4, 2}}, {"d", {1}}, {"e", {11}}}) {
    tensors.emplace_back(name, at::randn(shape));
  }
  return tensors;
}

// What rank `rank` of `world_size` holds if all elements of all tensors, one after the other, are cut evenly.
std::vector<StateSlice> slices_of_rank(const TensorList& tensors, int64_t rank, int64_t world_size) {
  int64_t total = 0;
  for (const auto& [name, tensor] : tensors) total += tensor.numel();
  const int64_t first = total * rank / world_size;
  const int64_t last = total * (rank + 1) / world_size;
  std::vector<StateSlice> slices;
  int64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    const int64_t begin = std::clamp<int64_t>(first - offset, 0, tensor.numel());
    const int64_t end = std::clamp<int64_t>(last - offset, 0, tensor.numel());
    offset += tensor.numel();
    if (begin == end) continue;
    slices.push_back(
        {name, tensor.sizes().vec(), begin, end, tensor.flatten().narrow(0, begin, end - begin).clone()});
  }
  return slices;
}

void write_state(const fs::path& folder, const TensorList& tensors, int64_t world_size) {
  fs::create_directories(folder);
  for (int64_t rank = 0; rank < world_size; ++rank) {
    const TensorFile file = optimizer_part(slices_of_rank(tensors, rank, world_size), 17, rank, world_size);
    write_safetensors(folder / file.name, file.tensors, file.metadata);
  }
}

TEST(DealByBytes, SpreadsTheBytesEvenly) {
  TensorList tensors;
  for (int64_t i = 1; i <= 40; ++i) tensors.emplace_back(std::to_string(i), at::zeros({i}));
  for (const int64_t num_parts : {1, 2, 3, 7}) {
    std::vector<int64_t> elements(static_cast<size_t>(num_parts), 0);
    const std::vector<int64_t> part_of = deal_by_bytes(tensors, num_parts);
    for (size_t i = 0; i < tensors.size(); ++i)
      elements[static_cast<size_t>(part_of[i])] += tensors[i].second.numel();
    const auto [least, most] = std::minmax_element(elements.begin(), elements.end());
    EXPECT_LE(*most - *least, 2) << num_parts << " parts of 820 elements";
  }
}

TEST(ModelPart, EveryTensorIsInTheFileThatTheIndexNames) {
  const TensorList tensors = random_tensors(1);
  for (const int64_t world_size : {2, 3, 5, 9}) {
    const testing::TemporaryFolder folder;
    for (int64_t rank = 0; rank < world_size; ++rank) {
      const TensorFile file = model_part(tensors, rank, world_size);
      EXPECT_EQ(file.tensors.empty(), rank >= 5) << "five tensors make five files at most";
      if (!file.tensors.empty()) write_safetensors(folder / file.name, file.tensors, file.metadata);
    }
    write_file_atomically(folder / kWeightsIndexFile, model_index(tensors, world_size));
    const WeightFiles files(folder.path());
    EXPECT_EQ(files.names().size(), tensors.size());
    for (const auto& [name, tensor] : tensors) EXPECT_TRUE(at::equal(files.tensor(name), tensor));
    const auto index = nlohmann::json::parse(read_file(folder / kWeightsIndexFile));
    EXPECT_EQ(index["metadata"]["total_size"], (21 + 2 + 40 + 1 + 11) * 4);
  }
}

TEST(OptimizerStateReader, ReadsTheRangesOfAnyNumberOfProcesses) {
  const TensorList tensors = random_tensors(2);
  for (const int64_t written : {2, 3, 5, 8}) {
    const testing::TemporaryFolder folder;
    write_state(folder.path(), tensors, written);
    const OptimizerStateReader reader(folder.path());
    EXPECT_EQ(reader.num_updates(), 17);
    for (const int64_t reading : {1, 2, 3, 4, 7}) {
      for (int64_t rank = 0; rank < reading; ++rank) {
        for (const StateSlice& expected : slices_of_rank(tensors, rank, reading)) {
          StateSlice found = expected;
          found.values = at::full_like(expected.values, NAN);
          reader.read(found);
          EXPECT_TRUE(at::equal(found.values, expected.values))
              << expected.name << ", " << written << " to " << reading;
        }
      }
    }
  }
}

TEST(OptimizerStateReader, AMissingFileIsAnErrorWhereItsRangeIsNeeded) {
  const testing::TemporaryFolder folder;
  const TensorList tensors = random_tensors(3);
  write_state(folder.path(), tensors, 3);
  fs::remove(folder / "optimizer-00002-of-00003.safetensors");
  const OptimizerStateReader reader(folder.path());
  for (const StateSlice& slice : slices_of_rank(tensors, 0, 3)) reader.read(slice);
  try {
    for (const StateSlice& slice : slices_of_rank(tensors, 1, 3)) reader.read(slice);
    FAIL() << "no error";
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("no optimizer file holds"), HasSubstr("a file is missing")));
  }
}

// The error that reading the state in `folder` ends with.
std::string state_error(const fs::path& folder) {
  try {
    const OptimizerStateReader reader(folder);
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "no error";
}

TEST(OptimizerStateReader, RefusesFilesThatContradictThemselvesOrEachOther) {
  const testing::TemporaryFolder folder;
  const at::Tensor values = at::zeros({4});
  const auto write = [&](const char* name, const std::string& pieces, const std::string& updates) {
    write_safetensors(folder / name, TensorList{{"w", values}}, {{"pieces", pieces}, {"updates", updates}});
  };
  EXPECT_THAT(state_error(folder.path()), HasSubstr("optimizer.safetensors is missing"));
  const std::string first = R"({"w": {"shape": [8], "begin": 0, "end": 4}})";
  const std::string second = R"({"w": {"shape": [8], "begin": 4, "end": 8}})";
  write("optimizer-00001-of-00002.safetensors", first, "3");
  write("optimizer-00002-of-00002.safetensors", second, "3");
  EXPECT_EQ(state_error(folder.path()), "no error");
  write("optimizer-00002-of-00002.safetensors", second, "4");
  EXPECT_THAT(state_error(folder.path()), HasSubstr("written after 4 updates, the other files after 3"));
  write("optimizer-00002-of-00002.safetensors", R"({"w": {"shape": [9], "begin": 4, "end": 8}})", "3");
  EXPECT_THAT(state_error(folder.path()), HasSubstr("the files do not belong together"));
  write("optimizer-00002-of-00002.safetensors", R"({"w": {"shape": [8], "begin": 5, "end": 8}})", "3");
  EXPECT_THAT(state_error(folder.path()), HasSubstr("has 4 values, but is said to be [5, 8) of [8]"));
  write("optimizer-00002-of-00002.safetensors", "[]", "3");
  EXPECT_THAT(state_error(folder.path()), HasSubstr("no JSON object `pieces`"));
}

// A store in memory for the threads of a test.
class SharedMap {
 public:
  void set(const std::string& key, const std::string& value) {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
  }
  std::string get(const std::string& key) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(20), [&] { return values_.contains(key); }))
      throw Error("nobody published " + key);
    return values_[key];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

class ThreadGroup : public CheckpointGroup {
 public:
  ThreadGroup(SharedMap& map, int64_t rank, int64_t world_size)
      : map_(map), rank_(rank), world_size_(world_size) {}
  int64_t rank() const override { return rank_; }
  int64_t world_size() const override { return world_size_; }
  void publish(const std::string& key, const std::string& value) override { map_.set(key, value); }
  std::string await(const std::string& key, int64_t /*from*/) override { return map_.get(key); }

 private:
  SharedMap& map_;
  int64_t rank_;
  int64_t world_size_;
};

// Saves one checkpoint with `world_size` writers of the same model. Returns what each of them threw.
std::vector<std::string> save_together(const TrainConfig& config, const fs::path& checkpoints,
                                       int64_t world_size, int64_t broken_rank) {
  SharedMap map;
  std::vector<std::string> errors(static_cast<size_t>(world_size));
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      CheckpointWriterOptions options;
      options.group = std::make_shared<ThreadGroup>(map, rank, world_size);
      if (rank == broken_rank)  // with a byte that is no UTF-8, as in paths of other systems
        options.before_file = [](const fs::path& path) {
          throw Error(path.string() + ": no space left \xe9");
        };
      Model model(config.model, at::kCPU);
      model.initialize(5);
      Optimizer optimizer(config.optimizer, model.parameters(), config.model.dim);
      TrainState state;
      state.step = 3;
      try {
        CheckpointWriter writer(checkpoints, config, config.data.tokenizer, options);
        writer.save_last(model, optimizer, state);
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

TEST(CheckpointWriter, SeveralProcessesWriteOneCheckpoint) {
  const testing::TemporaryFolder folder;
  const TrainConfig config = testing::tiny_run(folder.path());
  EXPECT_THAT(save_together(config, folder / "checkpoints", 3, -1), ::testing::Each(""));
  const fs::path checkpoint = folder / "checkpoints" / "step-00000003";
  verify_checkpoint(checkpoint);
  EXPECT_EQ(list_weight_files(checkpoint).size(), 4) << "the index and a file of each process";
  const Model loaded = load_model(checkpoint, at::kCPU);
  Model model(config.model, at::kCPU);
  model.initialize(5);
  for (size_t i = 0; i < loaded.parameters().size(); ++i)
    EXPECT_TRUE(at::equal(loaded.parameters()[i].tensor, model.parameters()[i].tensor.detach()));
  Optimizer optimizer(config.optimizer, model.parameters(), config.model.dim);
  OptimizerStateReader(checkpoint).restore(optimizer);
  EXPECT_EQ(optimizer.num_steps(), 0);
}

TEST(CheckpointWriter, IfOneProcessFailsNoneHasACheckpoint) {
  for (const int64_t broken : {0, 2}) {
    const testing::TemporaryFolder folder;
    const TrainConfig config = testing::tiny_run(folder.path());
    const std::vector<std::string> errors = save_together(config, folder / "checkpoints", 3, broken);
    EXPECT_THAT(errors, ::testing::Each(AllOf(HasSubstr("no space left"), HasSubstr("step 3"))));
    EXPECT_THAT(errors[1], HasSubstr(broken == 2 ? "rank 2: " : "model-00001-of-00003"));
    EXPECT_TRUE(fs::is_empty(folder / "checkpoints")) << "neither a checkpoint nor remains of one";
  }
}

}  // namespace
}  // namespace smoe
