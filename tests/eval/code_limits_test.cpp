// Programs that use more than they may: both modes must end them, all of them, and soon.
#include <signal.h>
#include <sys/wait.h>

#include "eval/code_test_support.h"

namespace smoe::testing {
namespace {

// Until a killed program is gone, on a busy machine.
constexpr double kSlackSeconds = 4.0;

class Limits : public LockedDownTest, public ::testing::WithParamInterface<SandboxMode> {
 protected:
  void SetUp() override {
    if (GetParam() == SandboxMode::kLockedDown) {
      LockedDownTest::SetUp();
    } else {
      prctl(PR_SET_CHILD_SUBREAPER, 1);
    }
  }
  // In unsafe mode, processes that lose their parent are left to init to reap, here to us.
  bool nothing_remains() const {
    return GetParam() == SandboxMode::kLockedDown ? nothing_is_left() : nothing_is_left_but_orphans();
  }
  CodeRunnerOptions options() const { return short_options(GetParam()); }
};

TEST_P(Limits, EndASleepingProgram) {
  const ProgramResult result =
      run_python_for(1.0, "import time\nprint('here', flush=True)\ntime.sleep(60)", options());
  EXPECT_VERDICT(result, kTimedOut);
  EXPECT_GE(result.seconds, 1.0);
  EXPECT_LT(result.seconds, 1.0 + kSlackSeconds);
  EXPECT_TRUE(nothing_remains());
}

TEST_P(Limits, EndAProgramThatIgnoresSignals) {
  const ProgramResult result = run_python_for(1.0,
                                              "import signal\n"
                                              "for number in range(1, 65):\n"
                                              "    try:\n"
                                              "        signal.signal(number, signal.SIG_IGN)\n"
                                              "    except (OSError, ValueError):\n"
                                              "        pass\n"
                                              "while True:\n"
                                              "    pass",
                                              options());
  EXPECT_VERDICT(result, kTimedOut);
  EXPECT_LT(result.seconds, 1.0 + kSlackSeconds);
  EXPECT_TRUE(nothing_remains());
}

TEST_P(Limits, EndAForkBomb) {
  CodeRunnerOptions some = options();
  some.limits.processes = 24;
  // Pages that forked processes share are counted once for each: leave the end to the clock.
  some.limits.memory_bytes = int64_t{8} << 30;
  const ProgramResult result = run_python_for(1.5,
                                              "import os\n"
                                              "refused = 0\n"
                                              "while True:\n"
                                              "    try:\n"
                                              "        os.fork()\n"
                                              "    except OSError:\n"
                                              "        if refused == 0:\n"
                                              "            print('refused', flush=True)\n"
                                              "        refused += 1",
                                              some);
  EXPECT_VERDICT(result, kTimedOut);
  EXPECT_NE(result.stdout_tail.find("refused"), std::string::npos) << result.stdout_tail;
  EXPECT_LT(result.seconds, 1.5 + kSlackSeconds);
  EXPECT_TRUE(nothing_remains());
}

TEST_P(Limits, EndAProgramThatWritesForever) {
  const ProgramResult result =
      run_python("import sys\nwhile True:\n    sys.stdout.write('x' * 65536)", options());
  EXPECT_VERDICT(result, kOutputLimit);
  EXPECT_EQ(result.stdout_tail.size(), 4096U);
  EXPECT_TRUE(nothing_remains());
}

TEST_P(Limits, RefuseAGreedyProcessMemory) {
  EXPECT_VERDICT(run_python("data = bytearray(2 << 30)", options()), kMemoryLimit);
}

TEST_P(Limits, CountTheMemoryOfAllProcessesTogether) {
  const ProgramResult result = run_python(
      "import os, time\n"
      "for child in range(4):\n"
      "    if os.fork() == 0:\n"
      "        data = b'x' * (100 << 20)\n"
      "        time.sleep(60)\n"
      "time.sleep(60)",
      options());
  EXPECT_VERDICT(result, kMemoryLimit);
  EXPECT_GT(result.peak_memory_bytes, int64_t{256} << 20);
  EXPECT_TRUE(nothing_remains());
}

TEST_P(Limits, EndWhatAProgramLeavesBehind) {
  const ProgramResult result = run_python("import subprocess\nsubprocess.Popen(['sleep', '60'])", options());
  EXPECT_VERDICT(result, kPassed);
  EXPECT_LT(result.seconds, 10.0);
  EXPECT_TRUE(nothing_remains());
}

TEST_P(Limits, AllowZombiesOfAProgramThatPasses) {
  const ProgramResult result = run_python(
      "import os\n"
      "for child in range(20):\n"
      "    if os.fork() == 0:\n"
      "        os._exit(0)",
      options());
  EXPECT_VERDICT(result, kPassed);
  EXPECT_TRUE(nothing_remains());
}

TEST_P(Limits, LimitTheSizeOfAFile) {
  CodeRunnerOptions some = options();
  some.limits.file_bytes = 1 << 20;
  const ProgramResult result = run_python("open('big', 'wb').write(b'x' * (4 << 20))", some);
  EXPECT_VERDICT(result, kFailed);
  EXPECT_NE(result.stderr_tail.find("File too large"), std::string::npos) << result.stderr_tail;
}

TEST_P(Limits, LimitOpenFiles) {
  const ProgramResult result = run_python("files = [open('/dev/null') for number in range(1000)]", options());
  EXPECT_VERDICT(result, kFailed);
  EXPECT_NE(result.stderr_tail.find("Too many open files"), std::string::npos) << result.stderr_tail;
}

INSTANTIATE_TEST_SUITE_P(Modes, Limits, ::testing::Values(SandboxMode::kLockedDown, SandboxMode::kUnsafe),
                         [](const auto& mode) {
                           return mode.param == SandboxMode::kLockedDown ? "LockedDown" : "Unsafe";
                         });

TEST_F(LockedDownTest, LimitsTheWorkFolderAsAWhole) {
  CodeRunnerOptions options = short_options();
  options.limits.folder_bytes = 4 << 20;
  const ProgramResult result = run_python(
      "for number in range(16):\n"
      "    open(f'part{number}', 'wb').write(b'x' * (1 << 20))",
      options);
  EXPECT_VERDICT(result, kFailed);
  EXPECT_NE(result.stderr_tail.find("No space left"), std::string::npos) << result.stderr_tail;
}

TEST_F(LockedDownTest, EndsProgramsWhenTheEvaluationIsKilled) {
  const pid_t evaluation = fork();
  if (evaluation == 0) {
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    const CodeSandbox sandbox({});
    SandboxLimits limits;
    limits.wall_seconds = 60.0;
    sandbox.run({{"sleep", "50"}, {}, {}}, limits);
    _exit(0);
  }
  // bwrap, its first process and the command, alive for some time.
  int stable = 0;
  for (int attempt = 0; attempt < 200 && stable < 6; ++attempt) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    stable = descendants_of(evaluation).size() >= 3 ? stable + 1 : 0;
  }
  ASSERT_EQ(stable, 6);
  kill(evaluation, SIGKILL);
  ASSERT_EQ(waitpid(evaluation, nullptr, 0), evaluation);
  EXPECT_TRUE(nothing_is_left_but_orphans());
}

}  // namespace
}  // namespace smoe::testing
