// Initial values of all parameters.
#pragma once

#include <cstdint>
#include <vector>

#include "smoe/model/model_config.h"
#include "smoe/model/parameters.h"

namespace smoe {

// Fills the parameters in place: norms with ones, buffers with zeros, everything else normal with mean 0 and
// standard deviation 1/sqrt(last dimension), which is the fan-in of matrices (the expert axis does not count)
// and D for embeddings; routers times config.router_init_scale. Each tensor has its own stream, a function of
// (seed, name), so that adding a parameter leaves the others as they were.
void initialize_parameters(const std::vector<NamedParameter>& parameters, const ModelConfig& config,
                           uint64_t seed);

}  // namespace smoe
