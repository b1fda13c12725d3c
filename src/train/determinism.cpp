#include "determinism.h"

#include <ATen/Context.h>

#include <cstdlib>

namespace smoe {

void use_deterministic_kernels() {
  // cuBLAS splits sums over streams by what is free at the moment unless its workspace is fixed; LibTorch
  // refuses its operations without this. A setting of the user's stays.
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  context.setDeterministicCuDNN(true);
  context.setBenchmarkCuDNN(false);  // choosing the fastest kernel by a race is a choice by chance
  // Filling fresh memory only serves to find reads of it; it costs a pass over every new tensor.
  context.setDeterministicFillUninitializedMemory(false);
}

}  // namespace smoe
