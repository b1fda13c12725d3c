#include "smoe/eval/code_sandbox.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "child_process.h"
#include "sandbox_words.h"
#include "smoe/core/error.h"

namespace smoe {
namespace {

namespace fs = std::filesystem;

constexpr const char* kUnsafeAdvice =
    "or pass --unsafe-code-execution to smoe-eval, which runs generated code with your rights and your "
    "network behind resource limits only: do that in a virtual machine or container that holds nothing of "
    "value";

// bwrap reports how the command ended only if the command started.
bool command_was_run(const std::string& report) { return report.find("\"exit-code\"") != std::string::npos; }

// The same text with U+FFFD for every byte that is not UTF-8: results are stored as JSON.
std::string as_utf8(const std::string& bytes) {
  using nlohmann::json;
  return json::parse(json(bytes).dump(-1, ' ', false, json::error_handler_t::replace)).get<std::string>();
}

SandboxResult as_result(ChildOutcome outcome) {
  SandboxResult result;
  result.end = outcome.end == ChildEnd::kExited        ? SandboxEnd::kExited
               : outcome.end == ChildEnd::kTimedOut    ? SandboxEnd::kTimedOut
               : outcome.end == ChildEnd::kMemoryLimit ? SandboxEnd::kMemoryLimit
                                                       : SandboxEnd::kOutputLimit;
  result.exit_status = outcome.exit_status;
  if (result.end == SandboxEnd::kExited && outcome.exit_status == 128 + SIGXCPU) {
    result.end = SandboxEnd::kTimedOut;
  }
  result.stdout_tail = as_utf8(outcome.stdout_tail);
  result.stderr_tail = as_utf8(outcome.stderr_tail);
  result.seconds = outcome.seconds;
  result.peak_memory_bytes = outcome.peak_memory_bytes;
  return result;
}

ChildRequest request_for(const SandboxLimits& limits) {
  ChildRequest request;
  request.wall_seconds = limits.wall_seconds;
  request.memory_bytes = limits.memory_bytes;
  request.output_bytes = limits.output_bytes;
  request.tail_bytes = limits.tail_bytes;
  return request;
}

void check_command(const SandboxCommand& command, const SandboxLimits& limits) {
  SMOE_CHECK(ConfigError, !command.arguments.empty() && !command.arguments.front().empty(),
             "a sandboxed command needs at least one word");
  SMOE_CHECK(ConfigError, limits.wall_seconds > 0.0 && limits.wall_seconds <= 86400.0,
             "the time limit of generated code is {} s; allowed are more than 0 and at most 86400",
             limits.wall_seconds);
  SMOE_CHECK(
      ConfigError,
      limits.memory_bytes > 0 && limits.address_space_bytes >= 0 && limits.processes > 0 &&
          limits.file_bytes > 0 && limits.folder_bytes > 0 && limits.output_bytes > 0 &&
          limits.tail_bytes >= 0,
      "limits of generated code must be positive; found memory {}, address space {}, processes {}, file {}, "
      "folder {}, output {}, tail {}",
      limits.memory_bytes, limits.address_space_bytes, limits.processes, limits.file_bytes,
      limits.folder_bytes, limits.output_bytes, limits.tail_bytes);
  SMOE_CHECK(ConfigError, limits.open_files >= 32,
             "generated code is limited to {} open files; at least 32 are needed to start",
             limits.open_files);
  for (const SandboxFile& file : command.files) {
    SMOE_CHECK(ConfigError,
               !file.name.empty() && file.name.find('/') == std::string::npos && file.name != "..",
               "'{}' is no name for a file of the sandbox's work folder", file.name);
  }
}

// A folder of its own for one unsafe run.
class WorkFolder {
 public:
  WorkFolder() {
    path_ = (fs::temp_directory_path() / "smoe-code-XXXXXX").string();
    SMOE_CHECK(Error, mkdtemp(path_.data()) != nullptr, "cannot make a folder for generated code in {}: {}",
               fs::temp_directory_path().string(), std::strerror(errno));
    give_away(path_);
  }
  ~WorkFolder() {
    std::error_code error;
    fs::remove_all(path_, error);
    if (error) {
      spdlog::warn("{}: what generated code left there could not be removed: {}", path_, error.message());
    }
  }
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;

  void add(const SandboxFile& file) const {
    const std::string path = path_ + "/" + file.name;
    std::ofstream stream(path, std::ios::binary);
    stream << file.bytes;
    stream.close();
    SMOE_CHECK(Error, stream.good(), "{}: cannot write the file for generated code", path);
    give_away(path);
  }
  const std::string& path() const { return path_; }

 private:
  static void give_away(const std::string& path) {
    if (geteuid() == 0) {
      SMOE_CHECK(Error, chown(path.c_str(), kNobody, kNobody) == 0,
                 "{}: cannot give the folder to user {}: {}", path, kNobody, std::strerror(errno));
    }
  }
  std::string path_;
};

}  // namespace

CodeSandbox::CodeSandbox(SandboxOptions options) : options_(std::move(options)) {
  if (options_.mode == SandboxMode::kLockedDown) {
    const std::string program = find_program(options_.bubblewrap);
    SMOE_CHECK(
        ConfigError, !program.empty(),
        "generated code runs only inside the sandbox program {}, which was not found; install the package "
        "bubblewrap (apt-get install bubblewrap), {}",
        options_.bubblewrap, kUnsafeAdvice);
    options_.bubblewrap = program;
  }
  probe();
}

void CodeSandbox::probe() const {
  SandboxLimits limits;
  limits.wall_seconds = 20.0;
  const char* remedy =
      options_.mode == SandboxMode::kLockedDown
          ? "bubblewrap 0.8 or newer and unprivileged user namespaces are needed (sysctl "
            "kernel.unprivileged_userns_clone=1, user.max_user_namespaces > 0, on Ubuntu an AppArmor profile "
            "for "
            "bwrap; in a container the right to make namespaces)"
          : "the tools prlimit, choom and setpriv of the package util-linux must be allowed to set limits";
  std::string found;
  try {
    const SandboxResult result =
        run({.arguments = {"true"}, .files = {{"probe", "x"}}, .read_only_paths = {}}, limits);
    if (result.end == SandboxEnd::kExited && result.exit_status == 0) {
      return;
    }
    found = fmt::format("exit status {}: {}", result.exit_status, result.stderr_tail);
  } catch (const ConfigError&) {
    throw;
  } catch (const Error& error) {
    found = error.what();
  }
  const bool locked_down = options_.mode == SandboxMode::kLockedDown;
  throw ConfigError(fmt::format("the sandbox for generated code does not work on this system: {}\n{}{}",
                                found, remedy,
                                locked_down ? fmt::format("; change that, {}", kUnsafeAdvice) : ""));
}

SandboxResult CodeSandbox::run(const SandboxCommand& command, const SandboxLimits& limits) const {
  check_command(command, limits);
  return options_.mode == SandboxMode::kLockedDown ? run_locked_down(command, limits)
                                                   : run_unsafe(command, limits);
}

SandboxResult CodeSandbox::run_locked_down(const SandboxCommand& command, const SandboxLimits& limits) const {
  std::vector<FileDescriptor> files;
  files.push_back(make_memory_file(""));
  for (const SandboxFile& file : command.files) {
    files.push_back(make_memory_file(file.bytes));
  }
  ChildRequest request = request_for(limits);
  for (const FileDescriptor& file : files) {
    request.inherited.push_back(&file);
  }
  request.is_namespace_supervisor = true;
  request.environment = environment_for(kWorkFolder);
  request.arguments = locked_down_words(options_.bubblewrap, command, limits);

  const ChildOutcome outcome = run_child(request);
  SMOE_CHECK(Error, outcome.end != ChildEnd::kExited || command_was_run(read_memory_file(files.front())),
             "the sandbox for generated code could not start (status {}): {}", outcome.exit_status,
             as_utf8(outcome.stderr_tail));
  return as_result(outcome);
}

SandboxResult CodeSandbox::run_unsafe(const SandboxCommand& command, const SandboxLimits& limits) const {
  const WorkFolder folder;
  for (const SandboxFile& file : command.files) {
    folder.add(file);
  }
  ChildRequest request = request_for(limits);
  request.environment = environment_for(folder.path());
  request.working_folder = folder.path();
  request.arguments = unsafe_words(command, limits);
  return as_result(run_child(request));
}

std::string CodeSandbox::description() const {
  return options_.mode == SandboxMode::kLockedDown ? "bubblewrap" : "unsafe";
}

}  // namespace smoe
