// What a thread of the CPU path works with: the rows of a chunk in [N, D] matrices, the matrices of an expert
// in stacked weights, scratch memory, and outputs that threads add into without meeting.
//
// Shape legend: N tokens, D model width, E experts, h expert width, M rows of a chunk.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "expert_schedule.h"
#include "matrix_multiply.h"
#include "smoe/model/routed_experts.h"
#include "swiglu_kernels.h"

namespace smoe {

struct Sizes {
  int64_t dim = 0;
  int64_t expert_dim = 0;
};

// Row-major matrices of one expert inside the stacked weights.
template <class Scalar>
struct ExpertMatrices {
  MatrixView<Scalar> gate_hD;
  MatrixView<Scalar> up_hD;
  MatrixView<Scalar> down_Dh;
};

template <class Scalar>
ExpertMatrices<const Scalar> expert_matrices(const ExpertWeights& weights, const Sizes& sizes,
                                             int64_t expert) {
  const int64_t h = sizes.expert_dim;
  const int64_t offset = expert * h * sizes.dim;
  return {{weights.gate_EhD.const_data_ptr<Scalar>() + offset, h, sizes.dim},
          {weights.up_EhD.const_data_ptr<Scalar>() + offset, h, sizes.dim},
          {weights.down_EDh.const_data_ptr<Scalar>() + offset, sizes.dim, h}};
}

template <class Scalar>
ExpertMatrices<Scalar> mutable_expert_matrices(const ExpertWeights& weights, const Sizes& sizes,
                                               int64_t expert) {
  const int64_t h = sizes.expert_dim;
  const int64_t offset = expert * h * sizes.dim;
  return {{weights.gate_EhD.mutable_data_ptr<Scalar>() + offset, h, sizes.dim},
          {weights.up_EhD.mutable_data_ptr<Scalar>() + offset, h, sizes.dim},
          {weights.down_EDh.mutable_data_ptr<Scalar>() + offset, sizes.dim, h}};
}

// The rows of one chunk. Where they lie together they are used in place, else they are copied.
template <class Scalar>
class ChunkRows {
 public:
  ChunkRows(const ExpertWork& work, const ExpertChunk& chunk, int64_t dim)
      : pieces_(work.pieces.data() + chunk.first_piece),
        num_pieces_(chunk.end_piece - chunk.first_piece),
        num_rows_(chunk.num_rows),
        dim_(dim) {
    for (int64_t i = 1; i < num_pieces_; ++i) {
      contiguous_ = contiguous_ && pieces_[i].begin == pieces_[i - 1].begin + pieces_[i - 1].count;
    }
  }

  int64_t size() const { return num_rows_; }

  MatrixView<const Scalar> gather(const at::Tensor& source_ND, Scalar* scratch_MD) const {
    const auto* source = source_ND.const_data_ptr<Scalar>();
    if (contiguous_) {
      return {source + pieces_[0].begin * dim_, num_rows_, dim_};
    }
    Scalar* target = scratch_MD;
    for (int64_t i = 0; i < num_pieces_; ++i) {
      const int64_t count = pieces_[i].count * dim_;
      std::memcpy(target, source + pieces_[i].begin * dim_, count * sizeof(Scalar));
      target += count;
    }
    return {scratch_MD, num_rows_, dim_};
  }

  // Adds a [M, D] matrix to the rows of `target_ND`. compute(product, beta) must store its matrix plus beta
  // times what was there.
  template <class Compute>
  void add_product(const at::Tensor& target_ND, Scalar* scratch_MD, const Compute& compute) const {
    auto* target = target_ND.mutable_data_ptr<Scalar>();
    if (contiguous_) {
      compute(MatrixView<Scalar>{target + pieces_[0].begin * dim_, num_rows_, dim_}, Scalar(1));
      return;
    }
    compute(MatrixView<Scalar>{scratch_MD, num_rows_, dim_}, Scalar(0));
    for (int64_t i = 0; i < num_pieces_; ++i) {
      const int64_t count = pieces_[i].count * dim_;
      add_into(target + pieces_[i].begin * dim_, scratch_MD, count);
      scratch_MD += count;
    }
  }

 private:
  const ExpertPiece* pieces_;
  int64_t num_pieces_;
  int64_t num_rows_;
  int64_t dim_;
  bool contiguous_ = true;
};

// Uninitialised blocks for the largest chunk, owned by one thread.
template <class Scalar>
class Scratch {
 public:
  Scratch(const ExpertWork& work, const Sizes& sizes, const at::Tensor& like) {
    int64_t rows = 0;
    for (const ExpertChunk& chunk : work.chunks) {
      rows = std::max(rows, chunk.num_rows);
    }
    const int64_t wide = rows * sizes.dim;
    const int64_t narrow = rows * sizes.expert_dim;
    memory_ = at::empty({3 * (wide + narrow)}, like.options());
    input_MD = memory_.mutable_data_ptr<Scalar>();
    gradient_MD = input_MD + wide;
    product_MD = gradient_MD + wide;
    gate_Mh = product_MD + wide;
    up_Mh = gate_Mh + narrow;
    hidden_Mh = up_Mh + narrow;
  }

  Scalar* input_MD;
  Scalar* gradient_MD;
  Scalar* product_MD;
  Scalar* gate_Mh;
  Scalar* up_Mh;
  Scalar* hidden_Mh;

 private:
  at::Tensor memory_;
};

// One zeroed [N, D] buffer a thread, summed in the order of the threads.
class ThreadOutputs {
 public:
  ThreadOutputs(const ExpertWork& work, const at::Tensor& like_ND) {
    for (int64_t thread = 0; thread < work.num_threads(); ++thread) {
      buffers_ND_.push_back(at::zeros(like_ND.sizes(), like_ND.options()));
    }
  }
  const at::Tensor& of(int64_t thread) const { return buffers_ND_[thread]; }
  at::Tensor sum() const {
    at::Tensor total_ND = buffers_ND_[0];
    for (size_t thread = 1; thread < buffers_ND_.size(); ++thread) {
      total_ND.add_(buffers_ND_[thread]);
    }
    return total_ND;
  }

 private:
  std::vector<at::Tensor> buffers_ND_;
};

// Rows of a chunk at most. Long matrix products pay more than scratch blocks that fit a core's second-level
// cache: with 256 rows the products run 5 to 9 % slower.
inline constexpr int64_t kMaxChunkRows = 1024;
inline constexpr int64_t kMinChunkRows = 32;
// Multiply-adds below which another thread costs more than it brings.
inline constexpr int64_t kMinThreadWork = int64_t{1} << 18;

inline Sizes sizes_of(const ExpertWeights& weights) {
  return {weights.gate_EhD.size(2), weights.gate_EhD.size(1)};
}

// The division that suits the number of threads and the size of the work.
inline ExpertWork divide_for_this_machine(const ExpertSchedule& schedule, const Sizes& sizes) {
  const int64_t multiply_adds = 3 * schedule.total_rows * sizes.dim * sizes.expert_dim;
  const int64_t num_threads = std::clamp<int64_t>(multiply_adds / kMinThreadWork, 1, at::get_num_threads());
  // Several chunks a thread, so that the shares come out even.
  const int64_t even_rows = schedule.total_rows / (4 * num_threads);
  return divide_expert_work(schedule, std::clamp(even_rows, kMinChunkRows, kMaxChunkRows), num_threads);
}

// Calls body(thread) once for each thread of the division, in parallel.
template <class Body>
void for_each_thread(const ExpertWork& work, const Body& body) {
  at::parallel_for(0, work.num_threads(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t thread = begin; thread < end; ++thread) {
      body(thread);
    }
  });
}

// Calls visit(piece index, offset of its rows in a [M, h] matrix, values in them, its mask) for the pieces of
// `chunk`.
template <class Scalar, class Visit>
void for_each_piece(const ExpertSchedule& schedule, const ExpertWork& work, const ExpertChunk& chunk,
                    int64_t expert_dim, const Visit& visit) {
  int64_t offset = 0;
  for (int64_t index = chunk.first_piece; index < chunk.end_piece; ++index) {
    const int64_t count = work.pieces[index].count * expert_dim;
    visit(index, offset, count, static_cast<Scalar>(schedule.runs[work.pieces[index].run].mask));
    offset += count;
  }
}

}  // namespace smoe
