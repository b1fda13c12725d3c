// What a client did wrong, or what went wrong with its request, as the HTTP status and the JSON body that
// OpenAI's clients expect.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "smoe/core/error.h"

namespace smoe {

class ApiError : public Error {
 public:
  // `param` names the field of the request that is at fault; empty if none is.
  ApiError(int status, std::string code, const std::string& message, std::string param = "");

  int status() const { return status_; }
  const std::string& param() const { return param_; }
  // {"error": {"message", "type", "param", "code"}}
  nlohmann::json body() const;

 private:
  int status_;
  std::string code_;
  std::string param_;
};

// Status 400 for a field with a value that cannot be used.
ApiError bad_field(const std::string& param, const std::string& message);

}  // namespace smoe
