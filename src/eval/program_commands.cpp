#include "program_commands.h"

#include <fmt/format.h>

namespace smoe {
namespace {

// Exit statuses by which what we start around a program reports to us. They are unlikely ones, so that a
// program that leaves early with status 0 has not passed.
constexpr int kReachedEnd = 113;
constexpr int kOutOfMemory = 114;
constexpr int kDoesNotCompile = 115;

// As lm-evaluation-harness does it: executed in an empty namespace, where __name__ is not "__main__", and
// passed if no exception comes out, SystemExit included.
constexpr const char* kPythonDriver = R"py(import os, sys, traceback
status = 1
try:
    with open("program.py", encoding="utf-8", errors="replace", newline="") as file:
        text = file.read()
    exec(compile(text, "program.py", "exec", dont_inherit=True), {})
    status = 113
except MemoryError:
    status = 114
except BaseException:
    try:
        traceback.print_exc()
    except BaseException:
        pass
for stream in (sys.stdout, sys.stderr):
    try:
        stream.flush()
    except BaseException:
        pass
os._exit(status)
)py";

std::string shell_quoted(const std::string& word) {
  std::string quoted = "'";
  for (const char character : word) {
    quoted += character == '\'' ? std::string("'\\''") : std::string(1, character);
  }
  return quoted + "'";
}

SandboxCommand python_command(const std::string& text, const CodeRunnerOptions& options) {
  SandboxCommand command;
  command.arguments = {options.python, "-s", "-B", "driver.py"};
  command.files = {{"driver.py", kPythonDriver}, {"program.py", text}};
  return command;
}

SandboxCommand java_command(const std::string& text, const CodeRunnerOptions& options,
                            const std::string& javatuples) {
  // Few threads and a bounded heap, so that the limits of processes and memory fit on machines of any size.
  const std::string common = "-XX:+UseSerialGC -XX:-UsePerfData -XX:ActiveProcessorCount=2";
  const std::string heap = fmt::format("-Xmx{}k", options.limits.memory_bytes / 2048);
  const auto for_compiler = [](std::string flags) {
    for (size_t at = flags.find("-X"); at != std::string::npos; at = flags.find("-X", at + 4)) {
      flags.insert(at, "-J");
    }
    return flags;
  };
  SandboxCommand command;
  command.files = {{"Problem.java", text}};
  if (!javatuples.empty()) {
    command.files.push_back({"javatuples.jar", javatuples});
  }
  const std::string build = fmt::format(
      "{} {} {} -J-XX:TieredStopAtLevel=1 -nowarn -encoding UTF-8 -cp javatuples.jar:. -d . Problem.java",
      shell_quoted(options.javac), for_compiler(common), for_compiler(heap));
  const std::string start =
      fmt::format("{} {} {} -XX:+ExitOnOutOfMemoryError -ea -cp javatuples.jar:. Problem",
                  shell_quoted(options.java), common, heap);
  command.arguments = {"sh", "-c", fmt::format("{} || exit {}; exec {}", build, kDoesNotCompile, start)};
  return command;
}

SandboxCommand swift_command(const std::string& text, const CodeRunnerOptions& options) {
  SandboxCommand command;
  command.files = {{"program.swift", text}};
  command.arguments = {"sh", "-c",
                       fmt::format("{} program.swift -o program || exit {}; exec ./program",
                                   shell_quoted(options.swift_compiler), kDoesNotCompile)};
  return command;
}

}  // namespace

SandboxCommand command_for(const Program& program, const CodeRunnerOptions& options,
                           const std::string& javatuples) {
  SandboxCommand command =
      program.language == ProgramLanguage::kPython ? python_command(program.text, options)
      : program.language == ProgramLanguage::kJava ? java_command(program.text, options, javatuples)
                                                   : swift_command(program.text, options);
  command.read_only_paths = options.read_only_paths;
  return command;
}

std::string trial_program(ProgramLanguage language) {
  switch (language) {
    case ProgramLanguage::kPython:
      return "assert 1 + 1 == 2";
    case ProgramLanguage::kJava:
      return "class Problem { public static void main(String[] words) { assert(1 + 1 == 2); } }";
    case ProgramLanguage::kSwift:
      return "assert(1 + 1 == 2)";
  }
  return "";
}

const char* install_advice(ProgramLanguage language) {
  switch (language) {
    case ProgramLanguage::kPython:
      return "install the package python3, or name an interpreter";
    case ProgramLanguage::kJava:
      return "install a JDK (package default-jdk-headless), or name javac and java";
    case ProgramLanguage::kSwift:
      return "install the Swift toolchain (package swiftlang where there is one, else from swift.org), or "
             "name "
             "swiftc and show its folder to programs";
  }
  return "";
}

ProgramVerdict verdict_of(ProgramLanguage language, const SandboxResult& run) {
  switch (run.end) {
    case SandboxEnd::kTimedOut:
      return ProgramVerdict::kTimedOut;
    case SandboxEnd::kMemoryLimit:
      return ProgramVerdict::kMemoryLimit;
    case SandboxEnd::kOutputLimit:
      return ProgramVerdict::kOutputLimit;
    case SandboxEnd::kExited:
      break;
  }
  if (run.exit_status == (language == ProgramLanguage::kPython ? kReachedEnd : 0)) {
    return ProgramVerdict::kPassed;
  }
  const bool python_memory = language == ProgramLanguage::kPython && run.exit_status == kOutOfMemory;
  const bool java_memory = language == ProgramLanguage::kJava && run.exit_status == 3 &&
                           run.stdout_tail.find("java.lang.OutOfMemoryError") != std::string::npos;
  return python_memory || java_memory ? ProgramVerdict::kMemoryLimit : ProgramVerdict::kFailed;
}

std::string detail_of(ProgramLanguage language, ProgramVerdict verdict, const SandboxResult& run) {
  if (verdict != ProgramVerdict::kFailed) {
    return std::string(verdict_name(verdict));
  }
  if (language != ProgramLanguage::kPython && run.exit_status == kDoesNotCompile) {
    return "does not compile";
  }
  if (run.exit_status > 128) {
    return fmt::format("signal {}", run.exit_status - 128);
  }
  return run.exit_status == 0 ? "left early with exit status 0"
                              : fmt::format("exit status {}", run.exit_status);
}

}  // namespace smoe
