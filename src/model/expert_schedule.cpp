#include "expert_schedule.h"

#include <algorithm>

namespace smoe {

at::Tensor make_ranges_tensor(const std::vector<TokenRange>& segments) {
  at::Tensor ranges_Q2 = at::empty({static_cast<int64_t>(segments.size()), 2}, at::kLong);
  auto* values = ranges_Q2.mutable_data_ptr<int64_t>();
  for (const TokenRange& segment : segments) {
    *values++ = segment.begin;
    *values++ = segment.end;
  }
  return ranges_Q2;
}

ExpertSchedule make_expert_schedule(const at::Tensor& mask_QE, const at::Tensor& ranges_Q2) {
  const at::Tensor mask_double_QE = mask_QE.detach().to(at::kDouble).contiguous();
  const int64_t num_segments = mask_QE.size(0);
  const int64_t num_experts = mask_QE.size(1);
  const double* mask = mask_double_QE.const_data_ptr<double>();
  const int64_t* ranges = ranges_Q2.const_data_ptr<int64_t>();

  ExpertSchedule schedule;
  schedule.num_rows.assign(num_experts, 0);
  schedule.first_run.assign(num_experts + 1, 0);
  // Visits the entries that are work. A NaN is work too: it must reach the output.
  const auto for_each_run = [&](auto&& visit) {
    for (int64_t q = 0; q < num_segments; ++q) {
      const int64_t begin = ranges[2 * q];
      const int64_t count = ranges[2 * q + 1] - begin;
      for (int64_t e = 0; count > 0 && e < num_experts; ++e) {
        const double value = mask[q * num_experts + e];
        if (value != 0.0) {
          visit(e, ExpertRun{begin, count, q, value});
        }
      }
    }
  };
  for_each_run([&](int64_t e, const ExpertRun& run) {
    ++schedule.first_run[e + 1];
    schedule.num_rows[e] += run.count;
    schedule.total_rows += run.count;
  });
  for (int64_t e = 0; e < num_experts; ++e) {
    schedule.first_run[e + 1] += schedule.first_run[e];
  }
  schedule.runs.resize(schedule.first_run[num_experts]);
  std::vector<int64_t> next_run(schedule.first_run.begin(), schedule.first_run.end() - 1);
  for_each_run([&](int64_t e, const ExpertRun& run) { schedule.runs[next_run[e]++] = run; });
  return schedule;
}

bool ExpertWork::continues_expert(int64_t thread) const {
  const int64_t first = first_chunk[thread];
  return first > 0 && first < first_chunk[thread + 1] && chunks[first - 1].expert == chunks[first].expert;
}

namespace {

void append_chunks(const ExpertSchedule& schedule, int64_t expert, int64_t max_chunk_rows, ExpertWork& work) {
  const int64_t num_rows = schedule.num_rows[expert];
  if (num_rows == 0) {
    return;
  }
  // Equal chunks: a small remainder would be a slow multiplication of its own.
  const int64_t num_chunks = (num_rows + max_chunk_rows - 1) / max_chunk_rows;
  const int64_t chunk_rows = (num_rows + num_chunks - 1) / num_chunks;
  const auto open_chunk = [&] {
    const auto piece = static_cast<int64_t>(work.pieces.size());
    work.chunks.push_back({expert, piece, piece, 0});
  };
  open_chunk();
  for (int64_t run = schedule.first_run[expert]; run < schedule.first_run[expert + 1]; ++run) {
    int64_t begin = schedule.runs[run].begin;
    const int64_t end = begin + schedule.runs[run].count;
    while (begin < end) {
      if (work.chunks.back().num_rows == chunk_rows) {
        open_chunk();
      }
      ExpertChunk& chunk = work.chunks.back();
      const int64_t count = std::min(end - begin, chunk_rows - chunk.num_rows);
      work.pieces.push_back({begin, count, run});
      ++chunk.end_piece;
      chunk.num_rows += count;
      begin += count;
    }
  }
}

}  // namespace

ExpertWork divide_expert_work(const ExpertSchedule& schedule, int64_t max_chunk_rows, int64_t num_threads) {
  ExpertWork work;
  for (int64_t expert = 0; expert < schedule.num_experts(); ++expert) {
    append_chunks(schedule, expert, max_chunk_rows, work);
  }
  const auto num_chunks = static_cast<int64_t>(work.chunks.size());
  // A chunk goes to the thread in whose share of the rows its middle lies.
  work.first_chunk.assign(num_threads + 1, num_chunks);
  work.first_chunk[0] = 0;
  int64_t rows_before = 0;
  int64_t thread = 0;
  for (int64_t index = 0; index < num_chunks; ++index) {
    const int64_t twice_middle = 2 * rows_before + work.chunks[index].num_rows;
    while (thread + 1 < num_threads && twice_middle * num_threads >= 2 * schedule.total_rows * (thread + 1)) {
      work.first_chunk[++thread] = index;
    }
    rows_before += work.chunks[index].num_rows;
  }
  return work;
}

}  // namespace smoe
