// Runs programs of benchmarks in the sandbox: which tools a language needs, how its programs are built and
// started, what counts as passed, and many at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "smoe/eval/code_sandbox.h"

namespace smoe {

enum class ProgramLanguage { kPython, kJava, kSwift };

// "python", "java", "swift".
std::string_view language_name(ProgramLanguage language);
std::optional<ProgramLanguage> language_from_name(std::string_view name);

struct Program {
  ProgramLanguage language = ProgramLanguage::kPython;
  std::string text;
};

enum class ProgramVerdict {
  kPassed,       // Python: the last line was reached; Java and Swift: exit status 0
  kFailed,       // an exception, another exit status, a signal, or it does not compile
  kTimedOut,     // wall clock or CPU time
  kMemoryLimit,  // refused memory, or ended by the supervisor
  kOutputLimit,
  kSkipped,  // a tool or library is missing: not an answer, never to be counted as wrong
};

// "passed", "failed", "timed out", "memory limit", "output limit", "skipped".
std::string_view verdict_name(ProgramVerdict verdict);

struct ProgramResult {
  ProgramVerdict verdict = ProgramVerdict::kSkipped;
  std::string detail;  // "exit status 1", "signal 11", "does not compile", what is missing
  std::string stdout_tail;
  std::string stderr_tail;
  double seconds = 0.0;
  int64_t peak_memory_bytes = 0;
};

struct CodeRunnerOptions {
  SandboxOptions sandbox;
  SandboxLimits limits;                 // wall_seconds is that of Python programs
  double compiled_wall_seconds = 30.0;  // Java, Swift: compiling and running together
  std::string python = "python3";       // names are looked up in the sandbox; paths may lie anywhere
  std::string javac = "javac";
  std::string java = "java";
  std::string swift_compiler = "swiftc";
  // The library javatuples 1.2. Empty: $SMOE_JAVATUPLES_JAR, else where Debian's libjavatuples-java puts it.
  std::filesystem::path javatuples_jar;
  std::vector<std::filesystem::path> read_only_paths;  // shown to programs besides the system's folders
  int64_t concurrency = 0;                             // programs at a time; 0: one a processor
};

class CodeRunner {
 public:
  // Throws ConfigError where the sandbox cannot be used, see CodeSandbox, and for a jar or path that is named
  // and does not exist.
  explicit CodeRunner(CodeRunnerOptions options);

  // What is missing to run this program, with the package to install; nullopt if nothing. The tools of a
  // language are tried once, with a small program. Thread-safe.
  std::optional<std::string> missing_for(const Program& program) const;

  ProgramResult run(const Program& program) const;

  // All programs, `concurrency` at a time, results in the order of `programs`. `on_done` is called after each
  // one, never twice at the same time. An exception of any run is thrown after the running ones have ended.
  std::vector<ProgramResult> run_all(
      std::span<const Program> programs,
      const std::function<void(size_t, const ProgramResult&)>& on_done = nullptr) const;

  const CodeSandbox& sandbox() const { return sandbox_; }

 private:
  ProgramResult run_unchecked(const Program& program, const SandboxLimits& limits) const;
  SandboxLimits limits_for(ProgramLanguage language) const;
  std::optional<std::string> missing_tools(ProgramLanguage language) const;

  CodeRunnerOptions options_;
  CodeSandbox sandbox_;
  std::string javatuples_bytes_;  // empty: there is no such library here
  mutable std::mutex mutex_;
  mutable std::map<ProgramLanguage, std::optional<std::string>> missing_tools_;
};

}  // namespace smoe
