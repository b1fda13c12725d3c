// From the JSON of a completion or chat request to a generation request. Fields that would change what the
// answer means and are not supported are refused; other unknown fields are ignored, as clients expect.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "smoe/infer/generation.h"
#include "smoe/serve/served_model.h"

namespace smoe {

enum class ApiKind { kCompletion, kChat };

struct ApiRequest {
  ApiKind kind = ApiKind::kCompletion;
  std::string model_id;  // of the catalog
  GenerationRequest generation;
  bool stream = false;
  bool include_usage = false;  // a stream ends with a chunk of token counts
};

// The JSON of a request's body. Throws ApiError.
nlohmann::json parse_request_body(const std::string& body);

// `max_output_tokens` bounds what a request may ask for. Throws ApiError that names the field.
ApiRequest parse_api_request(ApiKind kind, const nlohmann::json& body, const ServedModel& served,
                             const ModelCatalog& catalog, int64_t max_output_tokens);

}  // namespace smoe
