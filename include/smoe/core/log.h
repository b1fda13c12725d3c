// Logging for humans, on standard error, through spdlog. Results (tables, training lines) are not
// logs: tools print them to standard output.
#pragma once

#include <spdlog/spdlog.h>

#include <filesystem>
#include <string>
#include <string_view>

namespace smoe {

// Sets up the default spdlog logger of this process. `level`: trace | debug | info | warn | error |
// auto; auto is info on a terminal and warn when standard error is piped. Throws ConfigError for
// another word.
void initialize_logging(const std::string& level = "auto");

// Also writes every message at info and above, with date and time, to `path` (appending).
void log_to_file(const std::filesystem::path& path);

// Writes an error to the files of log_to_file() only; without one it does nothing. For errors that the
// console is told in another way.
void log_error_to_files(std::string_view message);

// True where progress bars and colours make sense: standard error is a terminal.
bool terminal_is_interactive();

}  // namespace smoe
