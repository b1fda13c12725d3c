// What the tests of generated code share: a runner with short limits, skipping where bubblewrap cannot be
// used, and a look at what processes are left.
#pragma once

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

#include "eval/process_tree.h"
#include "smoe/core/error.h"
#include "smoe/eval/code_runner.h"

namespace smoe::testing {

// `wall_seconds` leaves room for a busy machine; tests of the time limit shorten it.
inline CodeRunnerOptions short_options(SandboxMode mode = SandboxMode::kLockedDown) {
  CodeRunnerOptions options;
  options.sandbox.mode = mode;
  options.limits.wall_seconds = 15.0;
  options.limits.memory_bytes = int64_t{256} << 20;
  options.limits.address_space_bytes = int64_t{1} << 30;
  options.concurrency = 16;
  return options;
}

// Tests of what the sandbox forbids; they cannot say anything where it does not work.
class LockedDownTest : public ::testing::Test {
 protected:
  void SetUp() override {
    static const std::string problem = [] {
      try {
        CodeSandbox sandbox({});
      } catch (const ConfigError& error) {
        return std::string(error.what());
      }
      return std::string();
    }();
    if (!problem.empty()) {
      GTEST_SKIP() << "bubblewrap cannot be used here: " << problem;
    }
    // Orphans of children become ours, so that processes left behind and zombies can be seen.
    prctl(PR_SET_CHILD_SUBREAPER, 1);
  }
};

inline ProgramResult run_python(const std::string& text, const CodeRunnerOptions& options = short_options()) {
  return CodeRunner(options).run({ProgramLanguage::kPython, text});
}

inline ProgramResult run_python_for(double seconds, const std::string& text, CodeRunnerOptions options) {
  options.limits.wall_seconds = seconds;
  return CodeRunner(options).run({ProgramLanguage::kPython, text});
}

// True when no process below this one is left, zombies included; waits a little for those that are ending.
inline bool nothing_is_left() {
  for (int attempt = 0; attempt < 40; ++attempt) {
    if (descendants_of(getpid()).empty()) {
      return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return false;
}

// The same, for processes whose parent ended before them: reaping them is init's work, here ours.
inline bool nothing_is_left_but_orphans() {
  for (int attempt = 0; attempt < 40 && !descendants_of(getpid()).empty(); ++attempt) {
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return descendants_of(getpid()).empty();
}

#define EXPECT_VERDICT(result, expected)                                                                   \
  EXPECT_EQ((result).verdict, ProgramVerdict::expected)                                                    \
      << verdict_name((result).verdict) << ": " << (result).detail << "\nstdout: " << (result).stdout_tail \
      << "\nstderr: " << (result).stderr_tail

}  // namespace smoe::testing
