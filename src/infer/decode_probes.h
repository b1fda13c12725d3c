// What smoe-bench decode measures beside decoding: how fast memory streams, how long the disk alone takes for
// the same reads, and one or more rows of random tokens going through a model.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "smoe/core/random.h"
#include "smoe/infer/decode_batch.h"
#include "smoe/infer/expert_reader.h"
#include "smoe/infer/streaming_package.h"

namespace smoe {

// All computing threads together read more memory than caches hold.
class MemoryProbe {
 public:
  explicit MemoryProbe(int64_t num_bytes = int64_t{256} << 20);
  // Seconds for all of it.
  double read();
  int64_t num_bytes() const { return static_cast<int64_t>(values_.size() * sizeof(float)); }

 private:
  std::vector<float> values_;
  std::vector<float> sums_;  // so that reading has a purpose
};

// Reads blocks of a package in random order, as many together as it is told.
class DiskProbe {
 public:
  DiskProbe(const StreamingPackage& package, const ExpertReaderConfig& config);
  // Reads go around in memory for so many blocks: into the small memory of a single group, which caches hold,
  // they are faster than into the slots of a store.
  void use_memory(int64_t num_blocks);
  // Seconds for groups of blocks, each asked for at once when the one before has arrived.
  double read(const std::vector<int64_t>& group_sizes);

 private:
  struct Arrivals;
  const StreamingPackage& package_;
  std::shared_ptr<Arrivals> arrivals_;
  std::unique_ptr<BlockReader> reader_;
  std::unique_ptr<void, void (*)(void*)> memory_;
  int64_t capacity_ = 0;  // in blocks
  int64_t next_block_ = 0;
  SplitMix64 random_{17};
};

// Rows of random tokens, all alike in length.
class TokenRun {
 public:
  TokenRun(const Model& model, int64_t budget, int64_t segment_length, uint64_t seed, int64_t num_rows = 1);
  // Seconds for so many tokens of every row.
  double decode(int64_t num_tokens);
  double prefill_s() const { return prefill_s_; }

 private:
  int32_t next_token();

  DecodeBatch batch_;
  SplitMix64 random_;
  uint64_t vocab_size_;
  double prefill_s_ = 0;
};

}  // namespace smoe
