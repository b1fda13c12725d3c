// The CPU path of the routed experts (routed_experts_cpu.cpp) with the weights behind pointers. Chunks of one
// row, which is all that decoding a single sequence has, are products with a vector; the others go through
// the same matrix products as in training, from a decoded copy where the weights are not float32.
//
// Shape legend: N tokens, D model width, E experts, h expert width, Q segments, M rows of a chunk.
#include "smoe/model/routed_experts_listed.h"

#include <algorithm>
#include <stdexcept>

#include "encoded_matrix.h"
#include "expert_chunks.h"
#include "smoe/core/error.h"

namespace smoe {
namespace {

// The float32 matrices of an expert for products with many rows, and the memory for a decoded copy.
class WideExpert {
 public:
  explicit WideExpert(const ExpertShape& shape) : shape_(shape) {}

  ExpertMatrices<const float> of(const ExpertView& view) {
    const int64_t h = shape_.expert_dim;
    const int64_t size = h * shape_.dim;
    const auto* gate = static_cast<const float*>(view.gate_hD);
    const auto* up = static_cast<const float*>(view.up_hD);
    const auto* down = static_cast<const float*>(view.down_Dh);
    if (view.encoding != ExpertEncoding::kFloat32) {
      if (!decoded_.defined()) decoded_ = at::empty({3 * size}, at::kFloat);
      auto* values = decoded_.mutable_data_ptr<float>();
      decode_matrix(gate_matrix(view, shape_), values);
      decode_matrix(up_matrix(view, shape_), values + size);
      decode_matrix(down_matrix(view, shape_), values + 2 * size);
      gate = values;
      up = values + size;
      down = values + 2 * size;
    }
    return {{gate, h, shape_.dim}, {up, h, shape_.dim}, {down, shape_.dim, h}};
  }

 private:
  ExpertShape shape_;
  at::Tensor decoded_;
};

struct ListedWork {
  const ListedExperts& listed;
  std::vector<const ExpertView*> view_of_expert;  // [E], null where not listed
  const ExpertSchedule& schedule;
  ExpertWork work;
  Sizes sizes;
};

// One row: gate and up are reduced to the masked hidden state, then multiplied down into the output.
void run_single_row(const ListedWork& job, const ExpertChunk& chunk, const ExpertView& view,
                    const Scratch<float>& scratch, const at::Tensor& x_ND, const at::Tensor& y_ND) {
  const ExpertShape& shape = job.listed.shape;
  const ExpertPiece& piece = job.work.pieces[static_cast<size_t>(chunk.first_piece)];
  const float* x = x_ND.const_data_ptr<float>() + piece.begin * shape.dim;
  float* y = y_ND.mutable_data_ptr<float>() + piece.begin * shape.dim;
  multiply_vector(gate_matrix(view, shape), x, scratch.gate_Mh, false);
  multiply_vector(up_matrix(view, shape), x, scratch.up_Mh, false);
  const auto mask = static_cast<float>(job.schedule.runs[static_cast<size_t>(piece.run)].mask);
  swiglu_forward(scratch.gate_Mh, scratch.up_Mh, shape.expert_dim, mask);
  multiply_vector(down_matrix(view, shape), scratch.gate_Mh, y, true);
}

void run_rows(const ListedWork& job, const ExpertChunk& chunk, const ExpertMatrices<const float>& expert,
              const Scratch<float>& scratch, const at::Tensor& x_ND, const at::Tensor& y_ND) {
  const ChunkRows<float> rows(job.work, chunk, job.sizes.dim);
  const MatrixView<float> gate_Mh{scratch.gate_Mh, rows.size(), job.sizes.expert_dim};
  const MatrixView<float> up_Mh{scratch.up_Mh, rows.size(), job.sizes.expert_dim};
  const auto x_MD = rows.gather(x_ND, scratch.input_MD);
  multiply(x_MD, expert.gate_hD.transpose(), 0, gate_Mh);
  multiply(x_MD, expert.up_hD.transpose(), 0, up_Mh);
  for_each_piece<float>(job.schedule, job.work, chunk, job.sizes.expert_dim,
                        [&](int64_t, int64_t offset, int64_t count, float mask) {
                          swiglu_forward(gate_Mh.data + offset, up_Mh.data + offset, count, mask);
                        });
  rows.add_product(y_ND, scratch.product_MD, [&](MatrixView<float> product_MD, float beta) {
    multiply(as_const(gate_Mh), expert.down_Dh.transpose(), beta, product_MD);
  });
}

void run_thread(const ListedWork& job, int64_t thread, const at::Tensor& x_ND, const at::Tensor& y_ND) {
  const Scratch<float> scratch(job.work, job.sizes, x_ND);
  WideExpert wide(job.listed.shape);
  for (int64_t index = job.work.first_chunk[thread]; index < job.work.first_chunk[thread + 1]; ++index) {
    const ExpertChunk& chunk = job.work.chunks[index];
    const ExpertView& view = *job.view_of_expert[chunk.expert];
    if (chunk.num_rows == 1) {
      run_single_row(job, chunk, view, scratch, x_ND, y_ND);
    } else {
      run_rows(job, chunk, wide.of(view), scratch, x_ND, y_ND);
    }
  }
}

std::vector<const ExpertView*> views_by_expert(const ListedExperts& listed, const ExpertSchedule& schedule) {
  std::vector<const ExpertView*> view_of_expert(schedule.num_rows.size(), nullptr);
  for (size_t i = 0; i < listed.experts.size(); ++i) {
    view_of_expert.at(static_cast<size_t>(listed.experts[i])) = &listed.views[i];
  }
  for (size_t expert = 0; expert < view_of_expert.size(); ++expert) {
    if (schedule.num_rows[expert] > 0 && view_of_expert[expert] == nullptr) {
      throw std::logic_error(
          fmt::format("routed_experts_listed: expert {} is selected, but not listed", expert));
    }
  }
  return view_of_expert;
}

}  // namespace

at::Tensor routed_experts_listed(const at::Tensor& x_ND, const ListedExperts& listed,
                                 const at::Tensor& mask_QE, const std::vector<TokenRange>& segments) {
  SMOE_ASSERT(x_ND.dim() == 2 && x_ND.is_cpu() && x_ND.scalar_type() == at::kFloat);
  SMOE_ASSERT(x_ND.size(1) == listed.shape.dim && listed.experts.size() == listed.views.size());
  SMOE_ASSERT(mask_QE.dim() == 2 && mask_QE.size(0) == std::ssize(segments));
  const ExpertSchedule schedule = make_expert_schedule(mask_QE.cpu(), make_ranges_tensor(segments));
  const Sizes sizes{listed.shape.dim, listed.shape.expert_dim};
  const ListedWork job{listed, views_by_expert(listed, schedule), schedule,
                       divide_for_this_machine(schedule, sizes), sizes};
  const at::Tensor input_ND = x_ND.contiguous();
  const ThreadOutputs y(job.work, input_ND);
  for_each_thread(job.work, [&](int64_t thread) { run_thread(job, thread, input_ND, y.of(thread)); });
  return y.sum();
}

ListedExperts list_resident_experts(const ExpertWeights& weights, std::vector<int64_t> experts) {
  const int64_t h = weights.gate_EhD.size(1);
  const int64_t dim = weights.gate_EhD.size(2);
  ListedExperts listed{{dim, h}, std::move(experts), {}};
  const auto* gate = weights.gate_EhD.const_data_ptr<float>();
  const auto* up = weights.up_EhD.const_data_ptr<float>();
  const auto* down = weights.down_EDh.const_data_ptr<float>();
  for (const int64_t expert : listed.experts) {
    const int64_t offset = expert * h * dim;
    listed.views.push_back({ExpertEncoding::kFloat32, gate + offset, up + offset, down + offset});
  }
  return listed;
}

std::vector<std::vector<int64_t>> selected_experts(const at::Tensor& mask_QLE) {
  const at::Tensor any_LE = mask_QLE.ne(0).any(0).cpu().contiguous();
  const bool* any = any_LE.const_data_ptr<bool>();
  std::vector<std::vector<int64_t>> selected(static_cast<size_t>(any_LE.size(0)));
  for (auto& experts : selected) {
    for (int64_t expert = 0; expert < any_LE.size(1); ++expert) {
      if (any[expert]) experts.push_back(expert);
    }
    any += any_LE.size(1);
  }
  return selected;
}

}  // namespace smoe
