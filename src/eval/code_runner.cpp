#include "smoe/eval/code_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <thread>
#include <utility>

#include "child_process.h"
#include "program_commands.h"
#include "smoe/core/available_cores.h"
#include "smoe/core/error.h"
#include "smoe/core/files.h"

namespace smoe {
namespace {

namespace fs = std::filesystem;

// A slow start of a tool must not look as if it were missing, however short the limit of programs is.
constexpr double kTrialSeconds = 60.0;

constexpr const char* kDebianJavatuples = "/usr/share/java/javatuples.jar";

std::string read_javatuples(const fs::path& option) {
  const char* variable = std::getenv("SMOE_JAVATUPLES_JAR");
  const bool from_variable = option.empty() && variable != nullptr && *variable != '\0';
  const fs::path path = from_variable ? fs::path(variable) : option;
  if (!path.empty()) {
    std::error_code hidden;
    SMOE_CHECK(ConfigError, fs::is_regular_file(path, hidden),
               "{}: there is no such jar, or it may not be read; {} must name javatuples 1.2", path.string(),
               from_variable ? "the environment variable SMOE_JAVATUPLES_JAR" : "this option");
    return read_file(path);
  }
  return fs::is_regular_file(kDebianJavatuples) ? read_file(kDebianJavatuples) : std::string();
}

// The folders that a Python outside of the system's ones needs to see; found by asking it.
std::vector<fs::path> python_folders(const std::string& python) {
  if (!python.starts_with('/') || python.starts_with("/usr/")) {
    return {};
  }
  ChildRequest request;
  request.arguments = {python, "-I", "-c",
                       "import os, sys\nfor p in {sys.prefix, sys.base_prefix}: print(os.path.abspath(p))"};
  request.wall_seconds = 20.0;
  request.memory_bytes = int64_t{1} << 30;
  request.output_bytes = request.tail_bytes = 65536;
  const ChildOutcome outcome = run_child(request);
  SMOE_CHECK(ConfigError, outcome.end == ChildEnd::kExited && outcome.exit_status == 0,
             "{}: this Python interpreter does not start (status {}): {}", python, outcome.exit_status,
             outcome.stderr_tail);
  std::vector<fs::path> folders{python};
  for (size_t begin = 0; begin < outcome.stdout_tail.size();) {
    const size_t end = std::min(outcome.stdout_tail.find('\n', begin), outcome.stdout_tail.size());
    const fs::path folder = outcome.stdout_tail.substr(begin, end - begin);
    if (folder != "/usr") {
      folders.push_back(folder);
    }
    begin = end + 1;
  }
  return folders;
}

}  // namespace

std::string_view language_name(ProgramLanguage language) {
  constexpr std::array<std::string_view, 3> kNames{"python", "java", "swift"};
  return kNames[static_cast<size_t>(language)];
}

std::optional<ProgramLanguage> language_from_name(std::string_view name) {
  for (const auto language : {ProgramLanguage::kPython, ProgramLanguage::kJava, ProgramLanguage::kSwift}) {
    if (name == language_name(language)) {
      return language;
    }
  }
  return std::nullopt;
}

std::string_view verdict_name(ProgramVerdict verdict) {
  constexpr std::array<std::string_view, 6> kNames{"passed",       "failed",       "timed out",
                                                   "memory limit", "output limit", "skipped"};
  return kNames[static_cast<size_t>(verdict)];
}

CodeRunner::CodeRunner(CodeRunnerOptions options)
    : options_(std::move(options)),
      sandbox_(options_.sandbox),
      javatuples_bytes_(read_javatuples(options_.javatuples_jar)) {
  SMOE_CHECK(ConfigError, options_.concurrency >= 0,
             "{} programs at a time: allowed are 1 or more, and 0 for one a "
             "processor",
             options_.concurrency);
  SMOE_CHECK(ConfigError, options_.compiled_wall_seconds > 0.0,
             "the time limit of compiled programs is {} s; it must be more than 0",
             options_.compiled_wall_seconds);
  std::error_code hidden;
  for (const fs::path& path : options_.read_only_paths) {
    SMOE_CHECK(ConfigError, path.is_absolute() && fs::exists(path, hidden),
               "{}: to be shown to generated code, but it is no absolute path of something that exists",
               path.string());
  }
  if (sandbox_.mode() == SandboxMode::kLockedDown) {
    for (const fs::path& folder : python_folders(options_.python)) {
      options_.read_only_paths.push_back(folder);
    }
  }
}

std::optional<std::string> CodeRunner::missing_for(const Program& program) const {
  if (program.language == ProgramLanguage::kJava && javatuples_bytes_.empty() &&
      program.text.find("org.javatuples") != std::string::npos) {
    return "java: the library javatuples 1.2 is missing; install the package libjavatuples-java, or set "
           "SMOE_JAVATUPLES_JAR to its jar";
  }
  return missing_tools(program.language);
}

std::optional<std::string> CodeRunner::missing_tools(ProgramLanguage language) const {
  // The lock is held during the trial: others would only try the same.
  const std::lock_guard lock(mutex_);
  if (const auto known = missing_tools_.find(language); known != missing_tools_.end()) {
    return known->second;
  }
  std::optional<std::string> missing;
  std::string found;
  SandboxLimits limits = limits_for(language);
  limits.wall_seconds = std::max(limits.wall_seconds, kTrialSeconds);
  try {
    const ProgramResult trial = run_unchecked({language, trial_program(language)}, limits);
    if (trial.verdict != ProgramVerdict::kPassed) {
      found = fmt::format("{} {}", trial.detail, trial.stderr_tail);
    }
  } catch (const Error& error) {
    found = error.what();
  }
  if (!found.empty()) {
    missing = fmt::format("{}: the smallest program does not run in the sandbox ({}); {}",
                          language_name(language), found, install_advice(language));
  }
  return missing_tools_.emplace(language, missing).first->second;
}

ProgramResult CodeRunner::run(const Program& program) const {
  if (const std::optional<std::string> missing = missing_for(program)) {
    ProgramResult skipped;
    skipped.detail = *missing;
    return skipped;
  }
  return run_unchecked(program, limits_for(program.language));
}

ProgramResult CodeRunner::run_unchecked(const Program& program, const SandboxLimits& limits) const {
  SandboxResult run = sandbox_.run(command_for(program, options_, javatuples_bytes_), limits);
  ProgramResult result;
  result.verdict = verdict_of(program.language, run);
  result.detail = detail_of(program.language, result.verdict, run);
  result.stdout_tail = std::move(run.stdout_tail);
  result.stderr_tail = std::move(run.stderr_tail);
  result.seconds = run.seconds;
  result.peak_memory_bytes = run.peak_memory_bytes;
  return result;
}

SandboxLimits CodeRunner::limits_for(ProgramLanguage language) const {
  SandboxLimits limits = options_.limits;
  if (language != ProgramLanguage::kPython) {
    limits.wall_seconds = options_.compiled_wall_seconds;
    // The JVM and compilers reserve far more address space than they use; resident memory is limited anyway.
    limits.address_space_bytes = 0;
  }
  return limits;
}

std::vector<ProgramResult> CodeRunner::run_all(
    std::span<const Program> programs,
    const std::function<void(size_t, const ProgramResult&)>& on_done) const {
  std::vector<ProgramResult> results(programs.size());
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr problem;
  const auto work = [&] {
    for (size_t index = next++; index < programs.size(); index = next++) {
      try {
        results[index] = run(programs[index]);
        const std::lock_guard lock(mutex);
        if (on_done) {
          on_done(index, results[index]);
        }
      } catch (...) {
        const std::lock_guard lock(mutex);
        problem = problem ? problem : std::current_exception();
        next = programs.size();
      }
    }
  };
  const auto wanted =
      static_cast<size_t>(options_.concurrency > 0 ? options_.concurrency : available_cores());
  {
    std::vector<std::jthread> workers;
    for (size_t worker = 0; worker < std::min(wanted, programs.size()); ++worker) {
      workers.emplace_back(work);
    }
  }
  if (problem) {
    std::rethrow_exception(problem);
  }
  return results;
}

}  // namespace smoe
