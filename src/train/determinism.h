// Kernels that give the same bits every time.
#pragma once

namespace smoe {

// Makes all later operations of the process choose deterministic kernels; where an operation has none, it
// throws. Must come before the first use of a GPU, because cuBLAS reads its setting once.
void use_deterministic_kernels();

}  // namespace smoe
