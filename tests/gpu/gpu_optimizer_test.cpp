// LibTorch's fused AdamW on a GPU beside the CPU's.
#include "gpu_test_support.h"
#include "smoe/train/optimizer.h"

namespace smoe {
namespace {

using testing::kGpu;
using testing::relative_error;

std::vector<NamedParameter> make_parameters(at::Device device) {
  at::manual_seed(4);
  std::vector<NamedParameter> parameters;
  const auto add = [&](const char* name, at::IntArrayRef shape, ParameterKind kind) {
    parameters.push_back({name, at::randn(shape).to(device).set_requires_grad(true), kind});
  };
  add("matrix", {33, 65}, ParameterKind::kMatrix);
  add("router", {16, 8}, ParameterKind::kRouter);
  add("norm", {65}, ParameterKind::kNorm);
  return parameters;
}

TEST(GpuOptimizer, UpdatesEqualThoseOfTheCpu) {
  SMOE_NEEDS_GPU();
  const std::vector<NamedParameter> on_cpu = make_parameters(at::kCPU), on_gpu = make_parameters(kGpu);
  const OptimizerConfig config;
  Optimizer cpu(config, on_cpu, 1024), gpu(config, on_gpu, 1024);
  for (int step = 0; step < 5; ++step) {
    cpu.zero_gradients();
    gpu.zero_gradients();
    for (size_t i = 0; i < on_cpu.size(); ++i) {
      const at::Tensor gradient = at::randn(on_cpu[i].tensor.sizes());
      (on_cpu[i].tensor * gradient).sum().backward();
      (on_gpu[i].tensor * gradient.to(kGpu)).sum().backward();
    }
    EXPECT_NEAR(gpu.gradient_norm() / cpu.gradient_norm(), 1.0, 1e-5);
    const double norm = cpu.gradient_norm();
    cpu.clip_gradients(norm);
    gpu.clip_gradients(norm);
    cpu.step(0.7);
    gpu.step(0.7);
  }
  for (size_t i = 0; i < on_cpu.size(); ++i) {
    EXPECT_LT(relative_error(on_gpu[i].tensor, on_cpu[i].tensor), 1e-5) << on_cpu[i].name;
  }
}

}  // namespace
}  // namespace smoe
