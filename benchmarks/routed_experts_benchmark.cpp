// Speed of the routed experts beside three yardsticks measured in the same run: one large matrix product
// (what the machine can do), the masked-dense form, and a plain composition of LibTorch operators (rows
// sorted by expert, grouped matrix products, index_add) under autograd.
//
// GFLOP/s counts useful work only: 6 N k D h a forward, three times that for forward and backward. The
// recomputation of the sparse path and the unselected experts of the dense one count as nothing.
//
// Shape legend: N tokens, D model width, E experts, h expert width, Q segments, R selected rows.
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <malloc.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <string>

#include "smoe/model/routed_experts.h"

namespace smoe {
namespace {

constexpr int64_t kTokens = 2048;

struct Inputs {
  at::Tensor x_ND;
  ExpertWeights weights;
  at::Tensor mask_QE;
  std::vector<TokenRange> segments;
  double forward_flops = 0;
};

Inputs make_inputs(int64_t dim, int64_t num_experts, int64_t expert_dim, int64_t k, int64_t segment_length) {
  at::manual_seed(1);
  Inputs inputs;
  inputs.x_ND = at::randn({kTokens, dim}).requires_grad_(true);
  inputs.weights.gate_EhD = (at::randn({num_experts, expert_dim, dim}) * 0.05).requires_grad_(true);
  inputs.weights.up_EhD = (at::randn({num_experts, expert_dim, dim}) * 0.05).requires_grad_(true);
  inputs.weights.down_EDh = (at::randn({num_experts, dim, expert_dim}) * 0.05).requires_grad_(true);
  for (int64_t begin = 0; begin < kTokens; begin += segment_length) {
    inputs.segments.push_back({begin, std::min(begin + segment_length, kTokens)});
  }
  const auto num_segments = static_cast<int64_t>(inputs.segments.size());
  const at::Tensor rank_QE = at::rand({num_segments, num_experts}).argsort(int64_t{-1}).argsort(int64_t{-1});
  inputs.mask_QE = rank_QE.lt(k).to(at::kFloat).requires_grad_(true);
  inputs.forward_flops = 6.0 * static_cast<double>(kTokens * k * dim * expert_dim);
  return inputs;
}

at::Tensor sparse(const Inputs& in) {
  return routed_experts_sparse(in.x_ND, in.weights, in.mask_QE, in.segments);
}
at::Tensor masked_dense(const Inputs& in) {
  return routed_experts_masked_dense(in.x_ND, in.weights, in.mask_QE, in.segments);
}

// What a careful user of LibTorch would write; autograd keeps the activations of every selected row.
at::Tensor composition(const Inputs& in) {
  const int64_t segment_length = in.segments[0].end;
  const at::Tensor mask_EN = in.mask_QE.repeat_interleave(segment_length, 0).narrow(0, 0, kTokens).t();
  const at::Tensor selected_R2 = mask_EN.detach().nonzero();
  const at::Tensor token_R = selected_R2.select(1, 1);
  const at::Tensor offsets_E = mask_EN.detach().ne(0).sum(1).cumsum(0).to(at::kInt);
  const at::Tensor mask_R1 =
      mask_EN.reshape({-1}).index_select(0, selected_R2.select(1, 0) * kTokens + token_R).unsqueeze(1);
  const at::Tensor x_RD = in.x_ND.index_select(0, token_R);
  const at::Tensor gate_Rh = at::_grouped_mm(x_RD, in.weights.gate_EhD.transpose(1, 2), offsets_E);
  const at::Tensor up_Rh = at::_grouped_mm(x_RD, in.weights.up_EhD.transpose(1, 2), offsets_E);
  const at::Tensor hidden_Rh = at::silu(gate_Rh) * up_Rh * mask_R1;
  const at::Tensor y_RD = at::_grouped_mm(hidden_Rh, in.weights.down_EDh.transpose(1, 2), offsets_E);
  return at::zeros_like(in.x_ND).index_add(0, token_R, y_RD);
}

using Path = at::Tensor (*)(const Inputs&);

void report(benchmark::State& state, double flops) {
  state.counters["GFLOP/s"] = benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate,
                                                 benchmark::Counter::kIs1000);
}

// Arguments: D, E, h, k, segment length.
Inputs inputs_of(const benchmark::State& state) {
  return make_inputs(state.range(0), state.range(1), state.range(2), state.range(3), state.range(4));
}

void forward(benchmark::State& state, Path path) {
  const at::NoGradGuard no_grad;
  const Inputs inputs = inputs_of(state);
  for (auto _ : state) {
    benchmark::DoNotOptimize(path(inputs));
  }
  report(state, inputs.forward_flops);
}

void forward_backward(benchmark::State& state, Path path) {
  const Inputs inputs = inputs_of(state);
  const at::Tensor y_gradient_ND = at::randn_like(inputs.x_ND);
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        torch::autograd::grad({path(inputs)},
                              {inputs.x_ND, inputs.weights.gate_EhD, inputs.weights.up_EhD,
                               inputs.weights.down_EDh, inputs.mask_QE},
                              {y_gradient_ND}));
  }
  report(state, 3 * inputs.forward_flops);
}

void matrix_product(benchmark::State& state) {
  const int64_t size = 2048;
  const at::Tensor left = at::randn({size, size});
  const at::Tensor right = at::randn({size, size});
  at::Tensor product = at::empty({size, size});
  for (auto _ : state) {
    at::mm_out(product, left, right);
  }
  report(state, 2.0 * static_cast<double>(size * size * size));
}

void register_all() {
  struct Named {
    const char* name;
    Path path;
  };
  benchmark::RegisterBenchmark("matrix_product", matrix_product)->MeasureProcessCPUTime()->UseRealTime();
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{256, 32, 64}, std::vector<int64_t>{512, 64, 128}}) {
    for (const Named& named :
         {Named{"sparse", sparse}, Named{"masked_dense", masked_dense}, Named{"composition", composition}}) {
      for (const int64_t k : {4, 8, 16, 24}) {
        const std::vector<int64_t> arguments = {shape[0], shape[1], shape[2], k, 32};
        const auto add = [&](const std::string& kind, auto function) {
          benchmark::RegisterBenchmark((kind + "/" + named.name).c_str(), function, named.path)
              ->Args(arguments)
              ->ArgNames({"D", "E", "h", "k", "S"})
              ->MeasureProcessCPUTime()
              ->UseRealTime()
              ->Unit(benchmark::kMillisecond);
        };
        add("forward", forward);
        add("forward_backward", forward_backward);
      }
    }
    // Per-token routing: every token is a segment.
    benchmark::RegisterBenchmark("forward_backward/sparse", forward_backward, sparse)
        ->Args({shape[0], shape[1], shape[2], 8, 1})
        ->ArgNames({"D", "E", "h", "k", "S"})
        ->MeasureProcessCPUTime()
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  }
}

}  // namespace
}  // namespace smoe

int main(int argc, char** argv) {
  // Keep freed memory: else every large tensor costs a page fault a page.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  smoe::register_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
