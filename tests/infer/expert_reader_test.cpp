#include "smoe/infer/expert_reader.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>

#include "infer/streaming_test_support.h"
#include "smoe/core/error.h"

namespace {

std::atomic<int> refused_submits = 0;

}  // namespace

// Stands before liburing's: a kernel that is short of memory.
extern "C" int io_uring_submit(struct io_uring* ring) {
  if (refused_submits > 0) {
    --refused_submits;
    return -EAGAIN;
  }
  using Submit = int (*)(struct io_uring*);
  static const auto submit = reinterpret_cast<Submit>(::dlsym(RTLD_NEXT, "io_uring_submit"));
  return submit(ring);
}

namespace smoe {
namespace {

constexpr int64_t kBlock = 8192;

std::filesystem::path write_blocks(const testing::TemporaryFolder& folder, int64_t count) {
  const std::filesystem::path path = folder / "blocks.bin";
  std::ofstream file(path, std::ios::binary);
  for (int64_t i = 0; i < count; ++i) file << std::string(kBlock, static_cast<char>('a' + i % 26));
  return path;
}

struct Memory {
  explicit Memory(int64_t blocks)
      : data(static_cast<std::byte*>(std::aligned_alloc(4096, static_cast<size_t>(blocks * kBlock)))) {}
  ~Memory() { std::free(data); }
  std::byte* data;
};

// Collects completions and waits for a number of them.
struct Results {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<uint64_t, int> errors;

  BlockReader::Completion completion() {
    return [this](uint64_t ticket, int error) {
      const std::lock_guard lock(mutex);
      errors[ticket] = error;
      changed.notify_all();
    };
  }
  bool wait_for(size_t count, std::chrono::seconds limit) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, limit, [&] { return errors.size() >= count; });
  }
  void wait(size_t count) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return errors.size() >= count; });
  }
};

class ReaderTest : public ::testing::TestWithParam<ExpertBackend> {
 protected:
  static ExpertReaderConfig config(int64_t depth = 3) {
    return {GetParam(), ExpertIo::kBuffered, /*num_threads=*/2, depth};
  }
  static BlockRead read(const BlockReader& reader, const Memory& memory, int64_t ticket, int64_t block) {
    std::byte* slot = reader.owns_memory() ? nullptr : memory.data + ticket * kBlock;
    return {static_cast<uint64_t>(ticket), block * kBlock, kBlock, slot};
  }
};

TEST_P(ReaderTest, ReadsMoreBlocksThanItHasInFlight) {
  const testing::TemporaryFolder folder;
  const auto path = write_blocks(folder, 40);
  const Memory memory(40);
  Results results;
  const auto reader = make_block_reader(path, config());
  reader->set_completion(results.completion());
  std::vector<BlockRead> reads;
  for (int64_t i = 0; i < 40; ++i) reads.push_back(read(*reader, memory, i, 39 - i));
  reader->start(reads);
  results.wait(40);
  for (const BlockRead& one : reads) {
    EXPECT_EQ(results.errors.at(one.ticket), 0);
    const std::byte* block = one.slot != nullptr ? one.slot : reader->block(one.offset);
    const std::string expected(kBlock, static_cast<char>('a' + one.offset / kBlock % 26));
    EXPECT_EQ(std::memcmp(block, expected.data(), kBlock), 0);
  }
}

TEST_P(ReaderTest, ReportsABlockThatIsCutShort) {
  const testing::TemporaryFolder folder;
  const auto path = write_blocks(folder, 4);
  const Memory memory(1);
  Results results;
  const auto reader = make_block_reader(path, config());
  reader->set_completion(results.completion());
  std::filesystem::resize_file(path, 3 * kBlock);
  reader->start({read(*reader, memory, 0, 3)});
  results.wait(1);
  EXPECT_NE(results.errors.at(0), 0);
}

TEST_P(ReaderTest, FinishesItsReadsWhenDestroyed) {
  const testing::TemporaryFolder folder;
  const auto path = write_blocks(folder, 64);
  const Memory memory(64);
  Results results;
  {
    const auto reader = make_block_reader(path, config(2));
    reader->set_completion(results.completion());
    for (int64_t i = 0; i < 64; ++i) reader->start({read(*reader, memory, i, i)});
  }
  EXPECT_EQ(results.errors.size(), 64U);
}

TEST_P(ReaderTest, NamesAFileThatIsNotThere) {
  try {
    make_block_reader("/nonexistent/experts.bin", config());
    FAIL();
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("/nonexistent/experts.bin"));
  }
}

TEST(UringReader, ReadsWhatTheKernelDoesNotTakeAtOnce) {
  const testing::TemporaryFolder folder;
  const auto path = write_blocks(folder, 2);
  const Memory memory(2);
  Results results;
  const auto reader = make_block_reader(path, {ExpertBackend::kIoUring, ExpertIo::kBuffered, 2, 3});
  reader->set_completion(results.completion());
  refused_submits = 3;
  reader->start({{0, 0, kBlock, memory.data}});
  EXPECT_TRUE(results.wait_for(1, std::chrono::seconds(10))) << "it was not asked for again";
  EXPECT_EQ(refused_submits, 0) << "the reader does not submit through io_uring_submit";
  reader->start({{1, kBlock, kBlock, memory.data + kBlock}});
  results.wait(2);
  EXPECT_EQ(results.errors, (std::map<uint64_t, int>{{0, 0}, {1, 0}}));
}

INSTANTIATE_TEST_SUITE_P(Backends, ReaderTest, ::testing::ValuesIn(testing::kAllBackends),
                         [](const auto& each) { return std::string(enum_to_name(each.param)); });

}  // namespace
}  // namespace smoe
