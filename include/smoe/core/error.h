// The exception types of the library, and the check macros that throw them. Errors that a user can
// cause are typed by what was wrong (config, data, checkpoint, numbers), because the type decides
// the exit code of a tool; broken invariants of our own code go through SMOE_ASSERT.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace smoe {

// Base of everything the library throws on purpose. `what()` is the complete message for the user:
// where (file, line or key), what was found, what is allowed, and the remedy.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, int exit_code = 1)
      : std::runtime_error(message), exit_code_(exit_code) {}
  // The exit status of a tool that ends with this error; never 0.
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

// A config file, an override or a command line that cannot be used. Exit code 2.
class ConfigError : public Error {
 public:
  explicit ConfigError(const std::string& message) : Error(message, 2) {}
};

// A data file that is missing, malformed or does not fit the run. Exit code 3.
class DataError : public Error {
 public:
  explicit DataError(const std::string& message) : Error(message, 3) {}
};

// A checkpoint that is missing, damaged or does not fit the model. Exit code 4.
class CheckpointError : public Error {
 public:
  explicit CheckpointError(const std::string& message) : Error(message, 4) {}
};

// A loss, gradient or mask with values that must not occur. Exit code 5.
class NumericError : public Error {
 public:
  explicit NumericError(const std::string& message) : Error(message, 5) {}
};

namespace detail {
[[noreturn]] void assertion_failed(const char* condition, const char* file, int line);
}  // namespace detail

}  // namespace smoe

// Throws `ErrorType` with a formatted message unless `condition` holds:
//   SMOE_CHECK(DataError, size > 0, "{}: the file is empty", path.string());
#define SMOE_CHECK(ErrorType, condition, ...)            \
  do {                                                   \
    if (!(condition)) {                                  \
      throw ::smoe::ErrorType(fmt::format(__VA_ARGS__)); \
    }                                                    \
  } while (false)

// An invariant of our own code. Throws std::logic_error, in every build type: the checks are cheap
// beside the tensor work around them, and a wrong result is worse than a stop.
#define SMOE_ASSERT(condition)                                          \
  do {                                                                  \
    if (!(condition)) {                                                 \
      ::smoe::detail::assertion_failed(#condition, __FILE__, __LINE__); \
    }                                                                   \
  } while (false)
