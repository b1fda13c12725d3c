// Options of scoring and generation that only models with segment routing can follow.
#pragma once

#include "smoe/model/model_config.h"

namespace smoe {

// Throws ConfigError if an option about segments was given for a model that routes by token or not at all:
// ignoring it would make two readings of one model look like a comparison.
void check_segment_options(const ModelConfig& config, bool has_segment_length, bool has_routing);

}  // namespace smoe
