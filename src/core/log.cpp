#include "smoe/core/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "smoe/core/error.h"

namespace smoe {
namespace {

spdlog::level::level_enum parse_level(const std::string& level) {
  if (level == "auto") return terminal_is_interactive() ? spdlog::level::info : spdlog::level::warn;
  if (level == "trace") return spdlog::level::trace;
  if (level == "debug") return spdlog::level::debug;
  if (level == "info") return spdlog::level::info;
  if (level == "warn") return spdlog::level::warn;
  if (level == "error") return spdlog::level::err;
  throw ConfigError(
      fmt::format("log level: found `{}`; allowed: trace, debug, info, warn, error, auto", level));
}

}  // namespace

bool terminal_is_interactive() { return ::isatty(STDERR_FILENO) == 1; }

void initialize_logging(const std::string& level) {
  const spdlog::level::level_enum lowest = parse_level(level);
  // The sink colours the level's name only where standard error is a terminal.
  auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
  sink->set_level(lowest);
  // On a terminal a message first wipes the line, where a progress bar may stand.
  sink->set_pattern(terminal_is_interactive() ? "\r\x1b[K%H:%M:%S %^%l%$ %v" : "%Y-%m-%d %H:%M:%S %l %v");
  auto logger = std::make_shared<spdlog::logger>("smoe", std::move(sink));
  logger->set_level(lowest);
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

void log_to_file(const std::filesystem::path& path) {
  try {
    auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path.string(), /*truncate=*/false);
    sink->set_level(spdlog::level::info);
    sink->set_pattern("%Y-%m-%d %H:%M:%S.%e %l %v");
    spdlog::default_logger()->sinks().push_back(std::move(sink));
  } catch (const spdlog::spdlog_ex& error) {
    throw Error(fmt::format("{}: cannot open the log file: {}", path.string(), error.what()));
  }
  // A logger drops what is below its own level before any sink sees it.
  spdlog::default_logger()->set_level(std::min(spdlog::default_logger()->level(), spdlog::level::info));
  spdlog::default_logger()->flush_on(spdlog::level::info);
}

void log_error_to_files(std::string_view message) {
  const auto& logger = spdlog::default_logger();
  for (const spdlog::sink_ptr& sink : logger->sinks()) {
    if (std::dynamic_pointer_cast<spdlog::sinks::basic_file_sink_mt>(sink) == nullptr) continue;
    sink->log({logger->name(), spdlog::level::err, {message.data(), message.size()}});
    sink->flush();
  }
}

}  // namespace smoe
