// Each thread walks its chunks in the order of the experts, so that an expert's weights are read once, and
// adds rows into an output of its own; the outputs are summed in the order of the threads. No locks, and
// the same result for the same number of threads.
//
// Shape legend: N tokens, D model width, E experts, h expert width, Q segments, M rows of a chunk.
#include <ATen/Dispatch.h>
#include <ATen/record_function.h>

#include <optional>

#include "expert_chunks.h"
#include "expert_weight_gradients.h"
#include "routed_experts_paths.h"
#include "swiglu_kernels.h"

namespace smoe {
namespace {

// What the threads of one call share.
struct Call {
  const at::Tensor& x_ND;
  const ExpertWeights& weights;
  const ExpertSchedule& schedule;
  const ExpertWork& work;
  const KeptActivations& kept;
  Sizes sizes;
  std::vector<int64_t> first_row;  // of each chunk among all selected rows

  Call(const at::Tensor& x, const ExpertWeights& expert_weights, const ExpertSchedule& expert_schedule,
       const ExpertWork& expert_work, const KeptActivations& activations)
      : x_ND(x),
        weights(expert_weights),
        schedule(expert_schedule),
        work(expert_work),
        kept(activations),
        sizes(sizes_of(weights)) {
    int64_t row = 0;
    for (const ExpertChunk& chunk : work.chunks) {
      first_row.push_back(row);
      row += chunk.num_rows;
    }
  }

  bool keeps() const { return kept.gate_Rh.defined(); }
  // Where the activations of a chunk are: in what is kept, or else in `scratch`.
  template <class Scalar>
  MatrixView<Scalar> activations(const at::Tensor& kept_Rh, Scalar* scratch_Mh, int64_t chunk) const {
    const int64_t h = sizes.expert_dim;
    Scalar* data = keeps() ? kept_Rh.mutable_data_ptr<Scalar>() + first_row[chunk] * h : scratch_Mh;
    return {data, work.chunks[chunk].num_rows, h};
  }
};

template <class Scalar>
void forward_of_thread(const Call& call, int64_t thread, const at::Tensor& y_ND) {
  const ExpertWork& work = call.work;
  const Sizes& sizes = call.sizes;
  const Scratch<Scalar> scratch(work, sizes, call.x_ND);
  for (int64_t index = work.first_chunk[thread]; index < work.first_chunk[thread + 1]; ++index) {
    const ExpertChunk& chunk = work.chunks[index];
    const auto expert = expert_matrices<Scalar>(call.weights, sizes, chunk.expert);
    const ChunkRows<Scalar> rows(work, chunk, sizes.dim);
    const auto gate_Mh = call.activations(call.kept.gate_Rh, scratch.gate_Mh, index);
    const auto up_Mh = call.activations(call.kept.up_Rh, scratch.up_Mh, index);
    const MatrixView<Scalar> hidden_Mh{scratch.hidden_Mh, rows.size(), sizes.expert_dim};

    const auto x_MD = rows.gather(call.x_ND, scratch.input_MD);
    multiply(x_MD, expert.gate_hD.transpose(), 0, gate_Mh);
    multiply(x_MD, expert.up_hD.transpose(), 0, up_Mh);
    for_each_piece<Scalar>(call.schedule, work, chunk, sizes.expert_dim,
                           [&](int64_t, int64_t offset, int64_t count, Scalar mask) {
                             swiglu_hidden(gate_Mh.data + offset, up_Mh.data + offset,
                                           hidden_Mh.data + offset, count, mask);
                           });
    rows.add_product(y_ND, scratch.product_MD, [&](MatrixView<Scalar> product_MD, Scalar beta) {
      multiply(as_const(hidden_Mh), expert.down_Dh.transpose(), beta, product_MD);
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
void backward_of_thread(const Call& call, int64_t thread, const at::Tensor& y_gradient_ND,
                        BackwardOutputs& outputs) {
  const ExpertWork& work = call.work;
  const Sizes& sizes = call.sizes;
  const Scratch<Scalar> scratch(work, sizes, call.x_ND);
  int64_t previous_expert = -1;
  for (int64_t index = work.first_chunk[thread]; index < work.first_chunk[thread + 1]; ++index) {
    const ExpertChunk& chunk = work.chunks[index];
    const auto expert = expert_matrices<Scalar>(call.weights, sizes, chunk.expert);
    const ChunkRows<Scalar> rows(work, chunk, sizes.dim);
    const MatrixView<Scalar> gate_Mh{scratch.gate_Mh, rows.size(), sizes.expert_dim};
    const MatrixView<Scalar> up_Mh{scratch.up_Mh, rows.size(), sizes.expert_dim};
    const MatrixView<Scalar> hidden_Mh{scratch.hidden_Mh, rows.size(), sizes.expert_dim};

    const auto x_MD = rows.gather(call.x_ND, scratch.input_MD);
    const auto y_gradient_MD = rows.gather(y_gradient_ND, scratch.gradient_MD);
    const auto gate_value_Mh = call.activations(call.kept.gate_Rh, scratch.gate_Mh, index);
    const auto up_value_Mh = call.activations(call.kept.up_Rh, scratch.up_Mh, index);
    if (!call.keeps()) {
      multiply(x_MD, expert.gate_hD.transpose(), 0, gate_value_Mh);
      multiply(x_MD, expert.up_hD.transpose(), 0, up_value_Mh);
    }
    multiply(y_gradient_MD, expert.down_Dh, 0, hidden_Mh);
    for_each_piece<Scalar>(call.schedule, work, chunk, sizes.expert_dim,
                           [&](int64_t piece, int64_t offset, int64_t count, Scalar mask) {
                             outputs.mask_of_piece[piece] =
                                 swiglu_backward(gate_value_Mh.data + offset, up_value_Mh.data + offset,
                                                 hidden_Mh.data + offset, gate_Mh.data + offset,
                                                 up_Mh.data + offset, count, mask);
                           });
    // From here on gate and up hold their gradients, and hidden the masked hidden state.
    if (outputs.weights) {
      const auto gradient = outputs.weights->of<Scalar>(thread, chunk.expert, sizes);
      const bool overwrites =
          chunk.expert != previous_expert && outputs.weights->begins_with_nothing(thread, chunk.expert);
      const Scalar beta = overwrites ? 0 : 1;
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
                                      const ExpertSchedule& schedule, KeptActivations* kept) {
  RECORD_USER_SCOPE("smoe::routed experts forward");
  const ExpertWork work = divide_for_this_machine(schedule, sizes_of(weights));
  KeptActivations activations;
  if (kept != nullptr) {
    const std::vector<int64_t> shape = {schedule.total_rows, weights.gate_EhD.size(1)};
    activations = {at::empty(shape, x_ND.options()), at::empty(shape, x_ND.options())};
    *kept = activations;
  }
  const Call call(x_ND, weights, schedule, work, activations);
  const ThreadOutputs y(work, x_ND);
  AT_DISPATCH_FLOATING_TYPES(x_ND.scalar_type(), "routed_experts_cpu_forward", [&] {
    for_each_thread(work, [&](int64_t thread) { forward_of_thread<scalar_t>(call, thread, y.of(thread)); });
  });
  return y.sum();
}

RoutedExpertGradients routed_experts_cpu_backward(const at::Tensor& y_gradient_ND, const at::Tensor& x_ND,
                                                  const ExpertWeights& weights,
                                                  const ExpertSchedule& schedule, int64_t num_segments,
                                                  NeededGradients needed, const ExpertWeights& existing,
                                                  const KeptActivations& kept) {
  RECORD_USER_SCOPE("smoe::routed experts backward");
  const ExpertWork work = divide_for_this_machine(schedule, sizes_of(weights));
  const Call call(x_ND, weights, schedule, work, kept);
  BackwardOutputs outputs;
  outputs.mask_of_piece.resize(work.pieces.size());
  if (needed.x) {
    outputs.x.emplace(work, x_ND);
  }
  if (needed.weights) {
    outputs.weights.emplace(weights, schedule, work, existing);
  }
  AT_DISPATCH_FLOATING_TYPES(x_ND.scalar_type(), "routed_experts_cpu_backward", [&] {
    for_each_thread(
        work, [&](int64_t thread) { backward_of_thread<scalar_t>(call, thread, y_gradient_ND, outputs); });
  });
  RoutedExpertGradients gradients;
  if (outputs.x) {
    gradients.x_ND = outputs.x->sum();
  }
  if (outputs.weights) {
    const ExpertWeights sum = outputs.weights->sum();
    if (!existing.gate_EhD.defined()) gradients.weights = sum;
  }
  gradients.mask_QE = mask_gradient(outputs.mask_of_piece, schedule, work, num_segments);
  return gradients;
}

}  // namespace smoe
