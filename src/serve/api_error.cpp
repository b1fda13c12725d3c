#include "smoe/serve/api_error.h"

namespace smoe {

ApiError::ApiError(int status, std::string code, const std::string& message, std::string param)
    : Error(message), status_(status), code_(std::move(code)), param_(std::move(param)) {}

nlohmann::json ApiError::body() const {
  std::string type = "invalid_request_error";
  if (status_ == 429) type = "rate_limit_error";
  if (status_ >= 500) type = "server_error";
  nlohmann::json error = {{"message", what()}, {"type", type}, {"param", nullptr}, {"code", code_}};
  if (!param_.empty()) error["param"] = param_;
  return {{"error", std::move(error)}};
}

ApiError bad_field(const std::string& param, const std::string& message) {
  return {400, "invalid_value", fmt::format("{}: {}", param, message), param};
}

}  // namespace smoe
