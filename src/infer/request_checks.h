// What a request must satisfy before it is queued (internal to the session).
#pragma once

#include "smoe/infer/generation.h"
#include "smoe/model/model_config.h"

namespace smoe {

// Throws DataError for the prompt and ConfigError for the settings.
void check_request(const GenerationRequest& request, const ModelConfig& config);

}  // namespace smoe
