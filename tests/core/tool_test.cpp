// The frame of the tools, and what it sets up: errors, logging, memory.
#include "smoe/core/tool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <new>
#include <stdexcept>

#include "smoe/core/available_cores.h"
#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/core/log.h"
#include "temporary_folder.h"

namespace smoe {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct Outcome {
  int exit_code;
  std::string error_text;
};

Outcome run(const std::function<int()>& body) {
  ::testing::internal::CaptureStderr();
  const int exit_code = run_tool(body);
  return {exit_code, ::testing::internal::GetCapturedStderr()};
}

TEST(RunTool, PassesTheExitStatusOn) {
  EXPECT_EQ(run([] { return 7; }).exit_code, 7);
}

TEST(RunTool, TurnsErrorsIntoOneLineAndAStatus) {
  const Outcome config = run([]() -> int { throw ConfigError("a.yaml:1:1: wrong"); });
  EXPECT_EQ(config.exit_code, 2);
  EXPECT_EQ(config.error_text, "error: a.yaml:1:1: wrong\n");
  EXPECT_EQ(run([]() -> int { throw DataError("x"); }).exit_code, 3);
  EXPECT_EQ(run([]() -> int { throw CheckpointError("x"); }).exit_code, 4);
  EXPECT_EQ(run([]() -> int { throw NumericError("x"); }).exit_code, 5);
  EXPECT_EQ(run([]() -> int { throw Error("x"); }).exit_code, 1);
}

TEST(RunTool, OutputThatCannotBeWrittenIsAnError) {
  const auto run_into_full_disk = [](const std::function<int()>& body) {
    if (std::freopen("/dev/full", "w", stdout) == nullptr) std::exit(99);
    std::exit(run_tool(body));
  };
  const auto print = [](int exit_code) {
    std::cout << "answer\n";
    return exit_code;
  };
  using ::testing::ExitedWithCode;
  EXPECT_EXIT(run_into_full_disk([&] { return print(0); }), ExitedWithCode(1),
              "error: cannot write all of the output: No space left");
  EXPECT_EXIT(run_into_full_disk([&] { return print(6); }), ExitedWithCode(6), "cannot write all");
  EXPECT_EXIT(run_into_full_disk([&] {
                std::cout << "first\n" << std::flush;
                return 0;
              }),
              ExitedWithCode(1), "cannot write all of the output");
  EXPECT_EXIT(run_into_full_disk([] { return 0; }), ExitedWithCode(0), "");
}

TEST(RunTool, CatchesForeignExceptions) {
  EXPECT_EQ(run([]() -> int { throw std::runtime_error("odd"); }).error_text, "error: odd\n");
  const Outcome memory = run([]() -> int { throw std::bad_alloc(); });
  EXPECT_EQ(memory.exit_code, 1);
  EXPECT_THAT(memory.error_text, HasSubstr("out of memory; use smaller"));
}

TEST(RunTool, WritesFatalErrorsToTheLogFileAsWell) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "log.txt";
  const Outcome outcome = run([&]() -> int {
    log_to_file(path);
    throw DataError("x.bin: damaged");
  });
  initialize_logging();
  EXPECT_EQ(outcome.error_text, "error: x.bin: damaged\n") << "once on the console";
  EXPECT_THAT(read_file(path), ::testing::EndsWith(" error x.bin: damaged\n"));
}

TEST(AvailableCores, FollowTheAffinityOfTheProcess) {
  cpu_set_t original;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(original), &original), 0);
  EXPECT_EQ(available_cores(), CPU_COUNT(&original));
  int core = 0;
  while (!CPU_ISSET(core, &original)) ++core;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(available_cores(), 1);
  ASSERT_EQ(::sched_setaffinity(0, sizeof(original), &original), 0);
}

TEST(RunTool, LeavesOutTheStackTraceOfLibTorch) {
  const Outcome outcome = run(
      []() -> int { throw std::runtime_error("bad shape\nException raised from f at x.cpp:1\nframe #0"); });
  EXPECT_EQ(outcome.error_text, "error: bad shape\n");
}

TEST(Check, ThrowsTheGivenTypeWithTheFormattedText) {
  try {
    SMOE_CHECK(DataError, 1 > 2, "{}: expected {}, found {}", "x.bin", 2, 1);
    FAIL() << "no error";
  } catch (const DataError& error) {
    EXPECT_STREQ(error.what(), "x.bin: expected 2, found 1");
  }
  EXPECT_THROW(SMOE_ASSERT(1 > 2), std::logic_error);
}

TEST(Logging, IsQuietWhenStandardErrorIsPiped) {
  ::testing::internal::CaptureStderr();
  initialize_logging();
  spdlog::info("not shown");
  spdlog::warn("shown");
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, HasSubstr("warning shown\n"));
  EXPECT_THAT(text, Not(HasSubstr("not shown")));
  EXPECT_THAT(text, Not(HasSubstr("\x1b"))) << "no colours in a pipe";
}

TEST(Logging, AFileReceivesInfoAndAboveAndIsAppendedTo) {
  const testing::TemporaryFolder folder;
  const auto path = folder.write("run.log", "before\n");
  ::testing::internal::CaptureStderr();
  initialize_logging("error");
  log_to_file(path);
  spdlog::info("step {}", 1);
  spdlog::debug("detail");
  const std::string shown = ::testing::internal::GetCapturedStderr();
  initialize_logging();
  const std::string text = read_file(path);
  EXPECT_THAT(text, StartsWith("before\n20"));
  EXPECT_THAT(text, HasSubstr("info step 1\n"));
  EXPECT_THAT(text, Not(HasSubstr("detail")));
  EXPECT_EQ(shown, "");
}

TEST(Logging, AnUnknownLevelListsTheKnownOnes) {
  try {
    initialize_logging("loud");
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("found `loud`; allowed: trace, debug, info, warn, error, auto"));
  }
  EXPECT_THROW(log_to_file("/proc/no/such/file"), Error);
}

long page_faults() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

void use_memory(size_t bytes) {
  const std::unique_ptr<char[]> block(new char[bytes]);
  std::memset(block.get(), 1, bytes);
  // The compiler must not see that nobody reads the block.
  asm volatile("" : : "r"(block.get()) : "memory");
}

TEST(KeepFreedMemory, ASecondAllocationCausesNoPageFaults) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer brings its own malloc";
#endif
  keep_freed_memory();
  constexpr size_t kBytes = size_t{200} << 20;
  use_memory(kBytes);
  const long before = page_faults();
  use_memory(kBytes);
  // 51200 pages of 4 KiB; with glibc's defaults each of them faults again.
  EXPECT_LT(page_faults() - before, 500);
}

TEST(Version, StartsWithTheProjectVersion) { EXPECT_THAT(version(), StartsWith("0.")); }

}  // namespace
}  // namespace smoe
