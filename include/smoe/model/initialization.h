// Initial values of all parameters.
#pragma once

#include <cstdint>
#include <vector>

#include "smoe/model/model_config.h"
#include "smoe/model/parameters.h"

namespace smoe {

// Fills the parameters in place: norms with ones, buffers with zeros, everything else normal with mean 0.
//
// Standard deviations: 1/sqrt(fan-in) for projections that read the residual stream, 1/sqrt(D) for
// embeddings, config.router_init_scale/sqrt(D) for routers. Projections that write into the residual stream
// (o_proj, down_proj) get config.residual_init_scale/sqrt(2 * layers * fan-in), so that the stream's variance
// does not grow with depth. An unweighted sum of experts is one wide SwiGLU, hence the fan-in of every
// expert's down_proj is the width of the sum at the largest budget, (s + k) * h: with the fan-in of a single
// expert the sum would drown the token embeddings by a factor of sqrt(k).
//
// Each tensor has its own stream, a function of (seed, name), so that adding a parameter leaves the others as
// they were.
void initialize_parameters(const std::vector<NamedParameter>& parameters, const ModelConfig& config,
                           uint64_t seed);

}  // namespace smoe
