// The learning-rate schedule: a multiplier of the peak, and of the decoupled weight decay.
#pragma once

#include <cstdint>

#include "smoe/train/train_config.h"

namespace smoe {

// The multiplier in [0, 1] of optimizer step `step`, counted from 1 to `total_steps`. The warm-up is linear
// from 0 at "step 0" to 1 at step warmup_steps; the last step has exactly final_fraction (cosine, wsd).
//   cosine        half a cosine from 1 to final_fraction
//   wsd           1, then linear to final_fraction over the last decay_fraction of the steps
//   constant      1
//   inverse_sqrt  sqrt(w / step) with w = max(warmup_steps, 1)
double schedule_multiplier(const ScheduleConfig& config, int64_t step, int64_t total_steps);

}  // namespace smoe
