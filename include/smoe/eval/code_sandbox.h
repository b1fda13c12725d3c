// Runs a command that nobody trusts, such as a program that a language model wrote, in a locked-down child
// process. What it protects against, and what not, is in docs/code_execution.md. It knows no programming
// language: that is code_runner.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace smoe {

enum class SandboxMode {
  kLockedDown,  // bubblewrap: own namespaces, no network, read-only system, private work folder
  kUnsafe,      // resource limits in a temporary folder only; --unsafe-code-execution
};

struct SandboxOptions {
  SandboxMode mode = SandboxMode::kLockedDown;
  std::string bubblewrap = "bwrap";  // name in PATH, or a path
};

// Limits of one command with all its descendants, unless it says "process".
struct SandboxLimits {
  double wall_seconds = 3.0;
  int64_t memory_bytes = int64_t{1} << 30;         // resident memory, sampled every 25 ms
  int64_t address_space_bytes = int64_t{1} << 30;  // of a process; 0: no limit (for the JVM)
  int64_t processes = 64;                          // and threads
  int64_t file_bytes = int64_t{64} << 20;          // of a file
  int64_t folder_bytes = int64_t{128} << 20;       // of the work folder; kLockedDown only
  int64_t open_files = 256;                        // of a process
  int64_t output_bytes = int64_t{8} << 20;         // standard output and error together
  int64_t tail_bytes = 4096;                       // kept of each of the two
};

// A file of the work folder; `name` has no slash.
struct SandboxFile {
  std::string name;
  std::string bytes;
};

struct SandboxCommand {
  std::vector<std::string> arguments;  // the first is looked up in /usr/local/bin:/usr/bin:/bin
  std::vector<SandboxFile> files;      // present in the working folder
  std::vector<std::filesystem::path> read_only_paths;  // shown at the same place beside the system's folders
};

enum class SandboxEnd { kExited, kTimedOut, kMemoryLimit, kOutputLimit };

struct SandboxResult {
  SandboxEnd end = SandboxEnd::kExited;
  int exit_status = 0;      // of kExited: 128 + n after signal n, else meaningless
  std::string stdout_tail;  // valid UTF-8: other bytes are replaced by U+FFFD
  std::string stderr_tail;
  double seconds = 0.0;
  int64_t peak_memory_bytes = 0;  // the largest sample
};

// Any number of threads may call `run` of one object.
class CodeSandbox {
 public:
  // Tries the sandbox once. Throws ConfigError, with the package to install and the name of the unsafe mode,
  // if bubblewrap is missing or the system does not let it work.
  explicit CodeSandbox(SandboxOptions options);

  // Blocks until the command and all its descendants have ended. Throws Error if the sandbox could not be
  // started (never because of what the command did), and ConfigError for impossible limits.
  SandboxResult run(const SandboxCommand& command, const SandboxLimits& limits) const;

  SandboxMode mode() const { return options_.mode; }
  // What stands in result files: "bubblewrap" or "unsafe".
  std::string description() const;

 private:
  SandboxResult run_locked_down(const SandboxCommand& command, const SandboxLimits& limits) const;
  SandboxResult run_unsafe(const SandboxCommand& command, const SandboxLimits& limits) const;
  void probe() const;

  SandboxOptions options_;
};

}  // namespace smoe
