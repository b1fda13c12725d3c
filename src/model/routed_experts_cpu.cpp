// Each thread walks its chunks in the order of the experts, so that an expert's weights are read once, and
// adds rows into an output of its own; the outputs are summed in the order of the threads. No locks, and
// the same result for the same number of threads.
//
// Shape legend: N tokens, D model width, E experts, h expert width, Q segments, M rows of a chunk.
#include <ATen/Dispatch.h>

#include <optional>

#include "expert_chunks.h"
#include "expert_weight_gradients.h"
#include "routed_experts_paths.h"
#include "swiglu_kernels.h"

namespace smoe {
namespace {

template <class Scalar>
void forward_of_thread(int64_t thread, const at::Tensor& x_ND, const ExpertWeights& weights,
                       const ExpertSchedule& schedule, const ExpertWork& work, const at::Tensor& y_ND) {
  const Sizes sizes = sizes_of(weights);
  const Scratch<Scalar> scratch(work, sizes, x_ND);
  for (int64_t index = work.first_chunk[thread]; index < work.first_chunk[thread + 1]; ++index) {
    const ExpertChunk& chunk = work.chunks[index];
    const auto expert = expert_matrices<Scalar>(weights, sizes, chunk.expert);
    const ChunkRows<Scalar> rows(work, chunk, sizes.dim);
    const MatrixView<Scalar> gate_Mh{scratch.gate_Mh, rows.size(), sizes.expert_dim};
    const MatrixView<Scalar> up_Mh{scratch.up_Mh, rows.size(), sizes.expert_dim};

    const auto x_MD = rows.gather(x_ND, scratch.input_MD);
    multiply(x_MD, expert.gate_hD.transpose(), 0, gate_Mh);
    multiply(x_MD, expert.up_hD.transpose(), 0, up_Mh);
    for_each_piece<Scalar>(schedule, work, chunk, sizes.expert_dim,
                           [&](int64_t, int64_t offset, int64_t count, Scalar mask) {
                             swiglu_forward(gate_Mh.data + offset, up_Mh.data + offset, count, mask);
                           });
    rows.add_product(y_ND, scratch.product_MD, [&](MatrixView<Scalar> product_MD, Scalar beta) {
      multiply(as_const(gate_Mh), expert.down_Dh.transpose(), beta, product_MD);
    });
  }
}

// What the threads of the backward write to; absent where not needed.
struct BackwardOutputs {
  std::optional<ThreadOutputs> x;
  std::optional<ExpertWeightGradients> weights;
  std::vector<double> mask_of_piece;
};

template <class Scalar>
void backward_of_thread(int64_t thread, const at::Tensor& y_gradient_ND, const at::Tensor& x_ND,
                        const ExpertWeights& weights, const ExpertSchedule& schedule, const ExpertWork& work,
                        BackwardOutputs& outputs) {
  const Sizes sizes = sizes_of(weights);
  const Scratch<Scalar> scratch(work, sizes, x_ND);
  int64_t previous_expert = -1;
  for (int64_t index = work.first_chunk[thread]; index < work.first_chunk[thread + 1]; ++index) {
    const ExpertChunk& chunk = work.chunks[index];
    const auto expert = expert_matrices<Scalar>(weights, sizes, chunk.expert);
    const ChunkRows<Scalar> rows(work, chunk, sizes.dim);
    const MatrixView<Scalar> gate_Mh{scratch.gate_Mh, rows.size(), sizes.expert_dim};
    const MatrixView<Scalar> up_Mh{scratch.up_Mh, rows.size(), sizes.expert_dim};
    const MatrixView<Scalar> hidden_Mh{scratch.hidden_Mh, rows.size(), sizes.expert_dim};

    const auto x_MD = rows.gather(x_ND, scratch.input_MD);
    const auto y_gradient_MD = rows.gather(y_gradient_ND, scratch.gradient_MD);
    multiply(x_MD, expert.gate_hD.transpose(), 0, gate_Mh);
    multiply(x_MD, expert.up_hD.transpose(), 0, up_Mh);
    multiply(y_gradient_MD, expert.down_Dh, 0, hidden_Mh);
    for_each_piece<Scalar>(schedule, work, chunk, sizes.expert_dim,
                           [&](int64_t piece, int64_t offset, int64_t count, Scalar mask) {
                             outputs.mask_of_piece[piece] =
                                 swiglu_backward(gate_Mh.data + offset, up_Mh.data + offset,
                                                 hidden_Mh.data + offset, count, mask);
                           });
    // From here on gate and up hold their gradients, and hidden the masked hidden state.
    if (outputs.weights) {
      const auto gradient = outputs.weights->of<Scalar>(thread, chunk.expert, sizes);
      const Scalar beta = chunk.expert == previous_expert ? 1 : 0;
      multiply(as_const(gate_Mh).transpose(), x_MD, beta, gradient.gate_hD);
      multiply(as_const(up_Mh).transpose(), x_MD, beta, gradient.up_hD);
      multiply(y_gradient_MD.transpose(), as_const(hidden_Mh), beta, gradient.down_Dh);
    }
    if (outputs.x) {
      rows.add_product(outputs.x->of(thread), scratch.product_MD,
                       [&](MatrixView<Scalar> product_MD, Scalar beta) {
                         multiply(as_const(gate_Mh), expert.gate_hD, beta, product_MD);
                         multiply(as_const(up_Mh), expert.up_hD, 1, product_MD);
                       });
    }
    previous_expert = chunk.expert;
  }
}

at::Tensor mask_gradient(const std::vector<double>& of_piece, const ExpertSchedule& schedule,
                         const ExpertWork& work, int64_t num_segments) {
  at::Tensor gradient_QE = at::zeros({num_segments, schedule.num_experts()}, at::kDouble);
  auto* gradient = gradient_QE.mutable_data_ptr<double>();
  for (const ExpertChunk& chunk : work.chunks) {
    for (int64_t piece = chunk.first_piece; piece < chunk.end_piece; ++piece) {
      const int64_t segment = schedule.runs[work.pieces[piece].run].segment;
      gradient[segment * schedule.num_experts() + chunk.expert] += of_piece[piece];
    }
  }
  return gradient_QE;
}

}  // namespace

at::Tensor routed_experts_cpu_forward(const at::Tensor& x_ND, const ExpertWeights& weights,
                                      const ExpertSchedule& schedule) {
  const ExpertWork work = divide_for_this_machine(schedule, sizes_of(weights));
  const ThreadOutputs y(work, x_ND);
  AT_DISPATCH_FLOATING_TYPES(x_ND.scalar_type(), "routed_experts_cpu_forward", [&] {
    for_each_thread(work, [&](int64_t thread) {
      forward_of_thread<scalar_t>(thread, x_ND, weights, schedule, work, y.of(thread));
    });
  });
  return y.sum();
}

RoutedExpertGradients routed_experts_cpu_backward(const at::Tensor& y_gradient_ND, const at::Tensor& x_ND,
                                                  const ExpertWeights& weights,
                                                  const ExpertSchedule& schedule, int64_t num_segments,
                                                  NeededGradients needed) {
  const ExpertWork work = divide_for_this_machine(schedule, sizes_of(weights));
  BackwardOutputs outputs;
  outputs.mask_of_piece.resize(work.pieces.size());
  if (needed.x) {
    outputs.x.emplace(work, x_ND);
  }
  if (needed.weights) {
    outputs.weights.emplace(weights, schedule, work);
  }
  AT_DISPATCH_FLOATING_TYPES(x_ND.scalar_type(), "routed_experts_cpu_backward", [&] {
    for_each_thread(work, [&](int64_t thread) {
      backward_of_thread<scalar_t>(thread, y_gradient_ND, x_ND, weights, schedule, work, outputs);
    });
  });
  RoutedExpertGradients gradients;
  if (outputs.x) {
    gradients.x_ND = outputs.x->sum();
  }
  if (outputs.weights) {
    gradients.weights = outputs.weights->sum();
  }
  gradients.mask_QE = mask_gradient(outputs.mask_of_piece, schedule, work, num_segments);
  return gradients;
}

}  // namespace smoe
