// Random numbers of expert selection, each a function of (seed, segment, layer) only, so that a mask does not
// depend on the batch around it, the number of threads or the device. Segments are numbered from
// `first_segment`, so that a part of a larger batch gets the numbers that the whole would.
//
// Shape legend: Q segments, L MoE layers, E experts.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace smoe {

// float32 [Q * L, E] on the CPU, uniform in [0, 1]: ranking them gives every expert the same chance, and
// masks that are nested over k.
at::Tensor random_scores(uint64_t seed, int64_t num_segments, int64_t num_layers, int64_t num_experts,
                         int64_t first_segment = 0);

// float32 [Q * L, E] on the CPU, standard normal.
at::Tensor gaussian_scores(uint64_t seed, int64_t num_segments, int64_t num_layers, int64_t num_experts,
                           int64_t first_segment = 0);

// bool [Q] on the CPU: true with `probability`. For one seed the true set only shrinks as it falls.
at::Tensor random_segments(uint64_t seed, int64_t num_segments, double probability,
                           int64_t first_segment = 0);

}  // namespace smoe
