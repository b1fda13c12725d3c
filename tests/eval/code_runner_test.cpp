// What counts as passed, and what is skipped.
#include "smoe/eval/code_runner.h"

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "eval/code_test_support.h"
#include "temporary_folder.h"

namespace smoe::testing {
namespace {

using PythonPrograms = LockedDownTest;
using Languages = LockedDownTest;

TEST_F(PythonPrograms, PassWhenTheLastLineIsReached) {
  EXPECT_VERDICT(run_python("assert sum([1, 2]) == 3"), kPassed);
  EXPECT_VERDICT(run_python(""), kPassed);
  EXPECT_VERDICT(run_python("x = '\xC3\xA4'\r\nassert len(x) == 1\r\n"), kPassed);
  EXPECT_VERDICT(run_python("from __future__ import annotations\nimport math"), kPassed);
}

TEST_F(PythonPrograms, FailOnExceptionsAndSyntaxErrors) {
  const ProgramResult wrong = run_python("assert sum([1, 2]) == 4, 'sum is wrong'");
  EXPECT_VERDICT(wrong, kFailed);
  EXPECT_EQ(wrong.detail, "exit status 1");
  EXPECT_NE(wrong.stderr_tail.find("AssertionError: sum is wrong"), std::string::npos) << wrong.stderr_tail;
  EXPECT_VERDICT(run_python("def broken(:"), kFailed);
  EXPECT_VERDICT(run_python(std::string("x = 1\n") + std::string(1, char{0})), kFailed);
  EXPECT_VERDICT(run_python("input()"), kFailed);
}

TEST_F(PythonPrograms, FailWhenTheyLeaveBeforeTheTests) {
  for (const char* leave :
       {"import sys\nsys.exit(0)", "quit()", "raise SystemExit", "import os\nos._exit(0)"}) {
    EXPECT_VERDICT(run_python(std::string(leave) + "\nassert False"), kFailed) << leave;
  }
  EXPECT_EQ(run_python("import os\nos._exit(0)").detail, "left early with exit status 0");
}

TEST_F(PythonPrograms, DoNotRunTheirMainBlock) {
  EXPECT_VERDICT(run_python("if __name__ == '__main__':\n    raise ValueError"), kPassed);
}

TEST_F(PythonPrograms, FailOnDeepRecursion) {
  const ProgramResult shallow = run_python("def f(n): return f(n + 1)\nf(0)");
  EXPECT_VERDICT(shallow, kFailed);
  EXPECT_NE(shallow.stderr_tail.find("RecursionError"), std::string::npos) << shallow.stderr_tail;
  // The interpreter crashes or runs out of memory, by version.
  const ProgramResult deep =
      run_python("import sys\nsys.setrecursionlimit(10 ** 9)\ndef f(n): return [f(n + 1)]\nf(0)");
  EXPECT_TRUE(deep.verdict == ProgramVerdict::kFailed || deep.verdict == ProgramVerdict::kMemoryLimit)
      << verdict_name(deep.verdict);
}

TEST_F(PythonPrograms, ReportTheSignalThatEndedThem) {
  const ProgramResult result = run_python("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)");
  EXPECT_VERDICT(result, kFailed);
  EXPECT_EQ(result.detail, "signal 11");
}

TEST_F(PythonPrograms, KeepTheTailOfAHugeStandardError) {
  const ProgramResult result = run_python("import sys\nsys.stderr.write('x' * (1 << 20) + 'the end')");
  EXPECT_VERDICT(result, kPassed);
  EXPECT_EQ(result.stderr_tail.size(), 4096U);
  EXPECT_TRUE(result.stderr_tail.ends_with("the end"));
}

TEST_F(PythonPrograms, MayWriteBytesThatAreNotUtf8) {
  const ProgramResult result = run_python("import os\nos.write(1, bytes([97, 255, 254, 98]))");
  EXPECT_VERDICT(result, kPassed);
  EXPECT_EQ(result.stdout_tail,
            "a\uFFFD\uFFFD"
            "b");
  EXPECT_NO_THROW(nlohmann::json(result.stdout_tail).dump());
}

TEST_F(PythonPrograms, RunSixteenAtATimeInOrder) {
  std::vector<Program> programs;
  for (int index = 0; index < 32; ++index) {
    const std::string number = std::to_string(index);
    programs.push_back({ProgramLanguage::kPython, "print(" + number + ")\nassert " + number + " % 2 == 0"});
  }
  const CodeRunner runner(short_options());
  std::vector<int> done(programs.size(), 0);
  const std::vector<ProgramResult> results =
      runner.run_all(programs, [&](size_t index, const ProgramResult&) { ++done[index]; });
  ASSERT_EQ(results.size(), programs.size());
  for (size_t index = 0; index < results.size(); ++index) {
    EXPECT_EQ(results[index].stdout_tail, std::to_string(index) + "\n");
    EXPECT_EQ(results[index].verdict == ProgramVerdict::kPassed, index % 2 == 0);
    EXPECT_EQ(done[index], 1);
  }
  EXPECT_TRUE(nothing_is_left());
}

TEST_F(PythonPrograms, StopWhenTheCallbackThrows) {
  const std::vector<Program> programs(8, Program{ProgramLanguage::kPython, ""});
  const CodeRunner runner(short_options());
  EXPECT_THROW(runner.run_all(programs, [](size_t, const ProgramResult&) { throw DataError("full"); }),
               DataError);
}

TEST_F(Languages, AreSkippedByNameWhereTheToolIsMissing) {
  CodeRunnerOptions options = short_options();
  options.python = "python-that-is-not-there";
  options.swift_compiler = "swiftc-that-is-not-there";
  options.javac = "javac-that-is-not-there";
  const std::vector<Program> programs{
      {ProgramLanguage::kPython, ""}, {ProgramLanguage::kSwift, ""}, {ProgramLanguage::kJava, ""}};
  const std::vector<ProgramResult> results = CodeRunner(options).run_all(programs);
  const char* advice[] = {"package python3", "Swift toolchain", "default-jdk-headless"};
  for (size_t index = 0; index < results.size(); ++index) {
    EXPECT_VERDICT(results[index], kSkipped);
    EXPECT_NE(results[index].detail.find(advice[index]), std::string::npos) << results[index].detail;
    EXPECT_NE(results[index].detail.find("not-there"), std::string::npos) << results[index].detail;
  }
}

TEST_F(Languages, PythonMayBeAVirtualEnvironmentAnywhere) {
  TemporaryFolder folder;
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0755));
  const std::string environment = (folder / "environment").string();
  if (std::system(("/usr/bin/python3 -m venv --without-pip " + environment).c_str()) != 0) {
    GTEST_SKIP() << "/usr/bin/python3 cannot make virtual environments (package python3-venv)";
  }
  CodeRunnerOptions options = short_options();
  options.python = environment + "/bin/python";
  EXPECT_VERDICT(run_python("import sys\nassert sys.prefix == '" + environment + "', sys.prefix", options),
                 kPassed);
}

TEST_F(Languages, RefuseAJarThatIsNotThere) {
  CodeRunnerOptions options = short_options();
  options.javatuples_jar = "/nonexistent/javatuples.jar";
  EXPECT_THROW(CodeRunner{options}, ConfigError);
}

TEST_F(Languages, JavaPassesFailsAndDoesNotCompile) {
  const CodeRunner runner(short_options());
  const auto java = [](const std::string& body) {
    return Program{ProgramLanguage::kJava,
                   "class Problem { public static void main(String[] words) { " + body + " } }"};
  };
  if (const auto missing = runner.missing_for(java(""))) {
    GTEST_SKIP() << *missing;
  }
  const std::vector<Program> programs{java("assert(1 + 1 == 2);"), java("assert(1 + 1 == 3);"),
                                      java("int x = y;"), java("long[] data = new long[100_000_000];")};
  const std::vector<ProgramResult> results = runner.run_all(programs);
  EXPECT_VERDICT(results[0], kPassed);
  EXPECT_VERDICT(results[1], kFailed);
  EXPECT_EQ(results[1].detail, "exit status 1");
  EXPECT_VERDICT(results[2], kFailed);
  EXPECT_EQ(results[2].detail, "does not compile");
  EXPECT_VERDICT(results[3], kMemoryLimit);
}

TEST(UnsafeExecution, RunsProgramsAndRemovesTheirFolder) {
  const ProgramResult result = run_python("import os\nopen('file', 'w').write('x')\nprint(os.getcwd())",
                                          short_options(SandboxMode::kUnsafe));
  EXPECT_VERDICT(result, kPassed);
  const std::string folder = result.stdout_tail.substr(0, result.stdout_tail.find('\n'));
  EXPECT_NE(folder.find("smoe-code-"), std::string::npos) << folder;
  EXPECT_FALSE(std::filesystem::exists(folder));
  EXPECT_EQ(CodeRunner(short_options(SandboxMode::kUnsafe)).sandbox().description(), "unsafe");
}

TEST(UnsafeExecution, DoesNotPassOnTheEnvironmentOrRootsRights) {
  setenv("SMOE_TEST_SECRET", "key", 1);
  EXPECT_VERDICT(run_python("import os\nassert 'SMOE_TEST_SECRET' not in os.environ\nassert os.getuid() != 0",
                            short_options(SandboxMode::kUnsafe)),
                 kPassed);
  unsetenv("SMOE_TEST_SECRET");
}

}  // namespace
}  // namespace smoe::testing
