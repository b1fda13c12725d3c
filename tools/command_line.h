// The reading of command lines, the same in all tools.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <optional>
#include <string>

namespace smoe {

// CLI11 spells an open range as one that ends at the largest double, in 309 digits; its help says POSITIVE or
// NONNEGATIVE.
inline std::string without_open_range(std::string message) {
  const size_t range = message.find("not in range 0.000000 to 17976931348623157");
  if (range != std::string::npos)
    message.replace(range, std::string::npos, "not in the range that --help shows");
  return message;
}

// The status to end with at once: 0 after --help; 2, as for a config that cannot be used, after a command
// line that cannot be (the reason is on stderr). Nothing if the tool can go on.
inline std::optional<int> parse_command_line(CLI::App& app, int argc, const char* const* argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // prints the help
    fmt::print(stderr, "error: {} (--help lists what there is)\n", without_open_range(error.what()));
    return 2;
  }
  return std::nullopt;
}

}  // namespace smoe
