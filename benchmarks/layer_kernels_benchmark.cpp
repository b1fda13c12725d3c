// Speed of the fused CPU loops of the layers, forward and backward, beside LibTorch's operators for the same
// thing.
//
// Shape legend: B rows, T tokens, H heads, K head width, D model width, F hidden width.
#include <benchmark/benchmark.h>
#include <torch/csrc/autograd/autograd.h>

#include <string>

#include "model/causal_attention.h"
#include "model/projections.h"
#include "model/residual_norm.h"
#include "smoe/core/tool.h"

namespace smoe {
namespace {

using torch::autograd::variable_list;

constexpr int64_t kRows = 4;
constexpr int64_t kTokens = 512;
constexpr int64_t kHeadDim = 64;

at::Tensor leaf(at::IntArrayRef shape) { return at::randn(shape).requires_grad_(true); }

// Forward and backward of `run` for one upstream gradient.
void measure(benchmark::State& state, const variable_list& inputs,
             const std::function<at::Tensor(const variable_list&)>& run) {
  const at::Tensor gradient = at::randn_like(run(inputs).detach());
  for (auto _ : state) {
    benchmark::DoNotOptimize(torch::autograd::grad({run(inputs)}, inputs, {gradient}));
  }
}

RotaryTable angles() {
  const at::Tensor angle = at::rand({1, 1, kTokens, kHeadDim / 2});
  return {angle.cos(), angle.sin()};
}

void attention_fused(benchmark::State& state) {
  const int64_t heads = state.range(0);
  const RotaryTable table = angles();
  measure(state,
          {leaf({kRows, kTokens, heads * kHeadDim}), leaf({kRows, kTokens, heads * kHeadDim}),
           leaf({kRows, kTokens, heads * kHeadDim})},
          [&](const variable_list& x) {
            return causal_attention(x[0], x[1], x[2], table, {heads, heads, kHeadDim});
          });
}

void attention_stock(benchmark::State& state) {
  const int64_t heads = state.range(0);
  const RotaryTable table = angles();
  const auto split = [&](const at::Tensor& x) {
    return x.view({kRows, kTokens, heads, kHeadDim}).transpose(1, 2);
  };
  const auto rotate = [&](const at::Tensor& x) {
    const auto halves = split(x).chunk(2, -1);
    return at::cat(
        {halves[0] * table.cos - halves[1] * table.sin, halves[1] * table.cos + halves[0] * table.sin}, -1);
  };
  measure(state,
          {leaf({kRows, kTokens, heads * kHeadDim}), leaf({kRows, kTokens, heads * kHeadDim}),
           leaf({kRows, kTokens, heads * kHeadDim})},
          [&](const variable_list& x) {
            const at::Tensor mixed = at::scaled_dot_product_attention(rotate(x[0]), rotate(x[1]), split(x[2]),
                                                                      {}, 0.0, /*is_causal=*/true);
            return mixed.transpose(1, 2).flatten(2);
          });
}

void norm_fused(benchmark::State& state) {
  const int64_t dim = state.range(0);
  measure(state, {leaf({kRows * kTokens, dim}), leaf({kRows * kTokens, dim}), leaf({dim})},
          [](const variable_list& x) {
            const ResidualNorm result = residual_norm(x[0], x[1], x[2], 1e-5);
            return result.sum + result.normed;
          });
}

void norm_stock(benchmark::State& state) {
  const int64_t dim = state.range(0);
  measure(state, {leaf({kRows * kTokens, dim}), leaf({kRows * kTokens, dim}), leaf({dim})},
          [](const variable_list& x) {
            const at::Tensor sum = x[0] + x[1];
            return sum + at::rms_norm(sum, x[2].sizes(), x[2], 1e-5);
          });
}

variable_list swiglu_inputs(int64_t dim, int64_t hidden) {
  return {leaf({kRows * kTokens, dim}), leaf({hidden, dim}), leaf({hidden, dim}), leaf({dim, hidden})};
}

void swiglu_fused(benchmark::State& state) {
  measure(state, swiglu_inputs(state.range(0), state.range(1)), [](const variable_list& x) {
    return fused_swiglu(x[0], {x[1], x[2], x[3]});
  });
}

void swiglu_stock(benchmark::State& state) {
  measure(state, swiglu_inputs(state.range(0), state.range(1)), [](const variable_list& x) {
    return at::linear(at::silu(at::linear(x[0], x[1])) * at::linear(x[0], x[2]), x[3]);
  });
}

void settings(benchmark::internal::Benchmark* benchmark) {
  benchmark->MeasureProcessCPUTime()->UseRealTime()->Unit(benchmark::kMillisecond);
}

BENCHMARK(attention_fused)->ArgName("H")->Arg(4)->Arg(8)->Apply(settings);
BENCHMARK(attention_stock)->ArgName("H")->Arg(4)->Arg(8)->Apply(settings);
BENCHMARK(norm_fused)->ArgName("D")->Arg(256)->Arg(512)->Apply(settings);
BENCHMARK(norm_stock)->ArgName("D")->Arg(256)->Arg(512)->Apply(settings);
BENCHMARK(swiglu_fused)->ArgNames({"D", "F"})->Args({256, 512})->Args({512, 1024})->Apply(settings);
BENCHMARK(swiglu_stock)->ArgNames({"D", "F"})->Args({256, 512})->Args({512, 1024})->Apply(settings);

}  // namespace
}  // namespace smoe

int main(int argc, char** argv) {
  smoe::keep_freed_memory();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
