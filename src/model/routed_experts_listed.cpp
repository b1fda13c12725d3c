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
  ExpertShape shape;
  ExpertSchedule schedule;
  ExpertWork work;
  Sizes sizes;
  std::vector<const ExpertView*> view_of_expert;  // [E], null for experts that are not in the current part
};

// One row: gate and up are reduced to the masked hidden state, then multiplied down into the output.
void run_single_row(const ListedWork& job, const ExpertChunk& chunk, const ExpertView& view,
                    const Scratch<float>& scratch, const at::Tensor& x_ND, const at::Tensor& y_ND) {
  const ExpertShape& shape = job.shape;
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
  WideExpert wide(job.shape);
  for (int64_t index = job.work.first_chunk[thread]; index < job.work.first_chunk[thread + 1]; ++index) {
    const ExpertChunk& chunk = job.work.chunks[index];
    const ExpertView* view = job.view_of_expert[static_cast<size_t>(chunk.expert)];
    if (view == nullptr) continue;
    if (chunk.num_rows == 1) {
      run_single_row(job, chunk, *view, scratch, x_ND, y_ND);
    } else {
      run_rows(job, chunk, wide.of(*view), scratch, x_ND, y_ND);
    }
  }
}

}  // namespace

struct ListedExpertsSum::Job {
  ListedWork work;
  at::Tensor input_ND;
  ThreadOutputs outputs;
  std::vector<uint8_t> was_added;  // [E]
};

ListedExpertsSum::ListedExpertsSum(const at::Tensor& x_ND, const ExpertShape& shape,
                                   const at::Tensor& mask_QE, const std::vector<TokenRange>& segments) {
  SMOE_ASSERT(x_ND.dim() == 2 && x_ND.is_cpu() && x_ND.scalar_type() == at::kFloat);
  SMOE_ASSERT(x_ND.size(1) == shape.dim);
  SMOE_ASSERT(mask_QE.dim() == 2 && mask_QE.size(0) == std::ssize(segments));
  ListedWork work{shape, make_expert_schedule(mask_QE.cpu(), make_ranges_tensor(segments)), {}, {}, {}};
  work.sizes = {shape.dim, shape.expert_dim};
  work.work = divide_for_this_machine(work.schedule, work.sizes);
  const at::Tensor input_ND = x_ND.contiguous();
  ThreadOutputs outputs(work.work, input_ND);
  std::vector<uint8_t> was_added(static_cast<size_t>(mask_QE.size(1)), 0);
  job_ = std::make_unique<Job>(Job{std::move(work), input_ND, std::move(outputs), std::move(was_added)});
}

ListedExpertsSum::~ListedExpertsSum() = default;

// Each thread goes through its chunks in the order of their experts, so that sums do not depend on the parts.
void ListedExpertsSum::add(const ListedExperts& part) {
  SMOE_ASSERT(part.experts.size() == part.views.size());
  ListedWork& work = job_->work;
  work.view_of_expert.assign(job_->was_added.size(), nullptr);
  for (size_t i = 0; i < part.experts.size(); ++i) {
    work.view_of_expert.at(static_cast<size_t>(part.experts[i])) = &part.views[i];
    job_->was_added[static_cast<size_t>(part.experts[i])] = 1;
  }
  for_each_thread(work.work, [&](int64_t thread) {
    run_thread(work, thread, job_->input_ND, job_->outputs.of(thread));
  });
}

at::Tensor ListedExpertsSum::total() const {
  for (size_t expert = 0; expert < job_->was_added.size(); ++expert) {
    if (job_->work.schedule.num_rows[expert] > 0 && job_->was_added[expert] == 0) {
      throw std::logic_error(
          fmt::format("routed_experts_listed: expert {} is selected, but not listed", expert));
    }
  }
  return job_->outputs.sum();
}

at::Tensor routed_experts_listed(const at::Tensor& x_ND, const ListedExperts& listed,
                                 const at::Tensor& mask_QE, const std::vector<TokenRange>& segments) {
  ListedExpertsSum sum(x_ND, listed.shape, mask_QE, segments);
  sum.add(listed);
  return sum.total();
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
