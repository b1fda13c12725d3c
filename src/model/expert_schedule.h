// Turns a mask and the token ranges of its segments into work by expert: which rows each expert
// computes, cut into chunks of bounded size and dealt out to threads. Host data only.
//
// Shape legend: N tokens, E experts, Q segments.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "smoe/model/routed_experts.h"

namespace smoe {

// Rows [begin, begin + count) of one segment, computed by one expert with one mask value.
struct ExpertRun {
  int64_t begin = 0;
  int64_t count = 0;
  int64_t segment = 0;
  double mask = 0;
};

// The runs of all non-empty segments and mask entries other than 0, by expert, then by row.
struct ExpertSchedule {
  std::vector<ExpertRun> runs;
  std::vector<int64_t> first_run;  // [E + 1]: runs of expert e are [first_run[e], first_run[e + 1])
  std::vector<int64_t> num_rows;   // [E]
  int64_t total_rows = 0;

  int64_t num_experts() const { return static_cast<int64_t>(num_rows.size()); }
};

// int64 [Q, 2]: begin and end of each segment.
at::Tensor make_ranges_tensor(const std::vector<TokenRange>& segments);

// `mask_QE` is a floating tensor and `ranges_Q2` int64 (begin, end), both on the CPU.
ExpertSchedule make_expert_schedule(const at::Tensor& mask_QE, const at::Tensor& ranges_Q2);

// A run, or a part of one where a chunk ends inside it.
struct ExpertPiece {
  int64_t begin = 0;
  int64_t count = 0;
  int64_t run = 0;
};

// Rows of one expert that are gathered and multiplied together.
struct ExpertChunk {
  int64_t expert = 0;
  int64_t first_piece = 0;
  int64_t end_piece = 0;
  int64_t num_rows = 0;
};

// The chunks of all experts in order, and the chunks [first_chunk[t], first_chunk[t + 1]) of thread t.
struct ExpertWork {
  std::vector<ExpertPiece> pieces;
  std::vector<ExpertChunk> chunks;
  std::vector<int64_t> first_chunk;  // [num_threads + 1]

  int64_t num_threads() const { return static_cast<int64_t>(first_chunk.size()) - 1; }
  // Whether the first chunk of `thread` continues an expert that an earlier thread began.
  bool continues_expert(int64_t thread) const;
};

// Cuts every expert's rows into equal chunks of at most `max_chunk_rows`, and gives each of `num_threads`
// a contiguous range of chunks of about the same number of rows. A function of its arguments only.
ExpertWork divide_expert_work(const ExpertSchedule& schedule, int64_t max_chunk_rows, int64_t num_threads);

}  // namespace smoe
