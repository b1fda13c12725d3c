// LibTorch's messages for people.
#pragma once

#include <string>

namespace smoe {

// `message` without the C++ stack trace that LibTorch appends.
inline std::string without_stack_trace(std::string message) {
  message.resize(std::min(message.find("\nException raised from "), message.size()));
  while (message.ends_with('\n') || message.ends_with('.')) message.pop_back();
  return message;
}

}  // namespace smoe
