// Program texts, and that reference solutions pass and wrong ones fail: on small rows with the layout of the
// public files, and on the public files themselves where SMOE_BENCHMARKS names their folder.
#include "smoe/eval/code_programs.h"

#include <cstdlib>
#include <filesystem>

#include "eval/code_test_support.h"

namespace smoe::testing {
namespace {

namespace fs = std::filesystem;
using CodePrograms = LockedDownTest;

std::vector<Row> fixture(const std::string& name) {
  return read_rows(fs::path(SMOE_SOURCE_DIR) / "tests/eval/code_fixtures" / name, 0);
}

Row row_of(const char* json) { return Row("rows.jsonl", 7, nlohmann::json::parse(json)); }

TEST(ProgramText, OfHumanEvalIsPromptCompletionTestAndCheck) {
  const Row row =
      row_of(R"json({"prompt": "def f():\n", "test": "def check(c):\n    pass\n", "entry_point": "f"})json");
  const Program program = humaneval_program(row, "    return 1");
  EXPECT_EQ(program.language, ProgramLanguage::kPython);
  EXPECT_EQ(program.text, "def f():\n    return 1\ndef check(c):\n    pass\n\ncheck(f)");
}

TEST(ProgramText, OfMbppIsCompletionAndAssertions) {
  const Row row =
      row_of(R"json({"test_list": ["assert f() == 1", "assert f()"], "test_setup_code": "import x"})json");
  EXPECT_EQ(mbpp_program(row, "def f(): return 1\n").text,
            "def f(): return 1\n\nassert f() == 1\nassert f()");
}

TEST(ProgramText, OfMultiplEIsCutAtTheFirstStop) {
  const Row row = row_of(
      R"json({"prompt": "func f() {\n", "tests": "}\nf()", "language": "swift", "stop_tokens": ["\n}", "//"]})json");
  const Program program = multipl_e_program(row, "  g()\n}\nmore // x");
  EXPECT_EQ(program.language, ProgramLanguage::kSwift);
  EXPECT_EQ(program.text, "func f() {\n  g()\n}\nf()");
  EXPECT_EQ(multipl_e_program(row, "// x\n}").text, "func f() {\n\n}\nf()");
}

std::string multipl_e_error(const char* json) {
  try {
    multipl_e_program(row_of(json), "");
  } catch (const DataError& error) {
    return error.what();
  }
  return "no error";
}

TEST(ProgramText, NamesTheLineOfAnUnknownLanguageOrMissingField) {
  const std::string unknown =
      multipl_e_error(R"json({"prompt": "", "tests": "", "language": "cobol", "stop_tokens": []})json");
  EXPECT_NE(unknown.find("rows.jsonl:7"), std::string::npos) << unknown;
  EXPECT_NE(unknown.find("cobol"), std::string::npos) << unknown;
  const std::string missing =
      multipl_e_error(R"json({"prompt": "", "language": "java", "stop_tokens": []})json");
  EXPECT_NE(missing.find("tests"), std::string::npos) << missing;
}

CodeRunnerOptions patient_options() {
  CodeRunnerOptions options;
  options.limits.wall_seconds = 60.0;
  return options;
}

// References pass; the same behind a statement that returns nonsense fails.
void check_humaneval(const std::vector<Row>& rows) {
  std::vector<Program> programs;
  for (const Row& row : rows) {
    const std::string reference = row.text("canonical_solution");
    programs.push_back(humaneval_program(row, reference));
    programs.push_back(humaneval_program(row, "    return NotImplemented\n" + reference));
  }
  const std::vector<ProgramResult> results = CodeRunner(patient_options()).run_all(programs);
  for (size_t index = 0; index < rows.size(); ++index) {
    EXPECT_VERDICT(results[2 * index], kPassed) << rows[index].where();
    EXPECT_VERDICT(results[2 * index + 1], kFailed) << rows[index].where();
  }
}

// References pass; a completion that defines nothing fails.
void check_mbpp(const std::vector<Row>& rows) {
  std::vector<Program> programs;
  for (const Row& row : rows) {
    programs.push_back(mbpp_program(row, row.text("code")));
    programs.push_back(mbpp_program(row, "pass"));
  }
  const std::vector<ProgramResult> results = CodeRunner(patient_options()).run_all(programs);
  for (size_t index = 0; index < rows.size(); ++index) {
    if (rows[index].text("test_setup_code").empty()) {
      EXPECT_VERDICT(results[2 * index], kPassed) << rows[index].where();
    }
    EXPECT_VERDICT(results[2 * index + 1], kFailed) << rows[index].where();
  }
}

TEST_F(CodePrograms, ReferencesOfSmallHumanEvalPassAndMutantsFail) {
  check_humaneval(fixture("HumanEval.jsonl"));
}

TEST_F(CodePrograms, ReferencesOfSmallMbppPass) { check_mbpp(fixture("mbpp.jsonl")); }

TEST_F(CodePrograms, SolutionsOfSmallMultiplEPassAndMutantsFail) {
  const std::vector<Row> rows = fixture("multipl_e.jsonl");
  const char* right[] = {"        return a + b;\n    }\n    junk",
                         "        return Pair.with(pair.getValue1(), pair.getValue0());\n    }\n",
                         "    return a + b\n}\njunk"};
  const char* wrong[] = {"        return a - b;\n    }\n", "        return pair;\n    }\n",
                         "    return a - b\n}\n"};
  std::vector<Program> programs;
  for (size_t index = 0; index < rows.size(); ++index) {
    programs.push_back(multipl_e_program(rows[index], right[index]));
    programs.push_back(multipl_e_program(rows[index], wrong[index]));
  }
  const CodeRunner runner(short_options());
  const std::vector<ProgramResult> results = runner.run_all(programs);
  for (size_t index = 0; index < programs.size(); ++index) {
    if (const auto missing = runner.missing_for(programs[index])) {
      EXPECT_VERDICT(results[index], kSkipped);
      EXPECT_EQ(results[index].detail, *missing);
    } else if (index % 2 == 0) {
      EXPECT_VERDICT(results[index], kPassed);
    } else {
      EXPECT_VERDICT(results[index], kFailed);
    }
  }
}

const char* public_files() { return std::getenv("SMOE_BENCHMARKS"); }

TEST_F(CodePrograms, ReferencesOfPublicHumanEvalPassAndMutantsFail) {
  if (public_files() == nullptr) {
    GTEST_SKIP() << "SMOE_BENCHMARKS does not name a folder with humaneval/HumanEval.jsonl";
  }
  check_humaneval(read_rows(fs::path(public_files()) / "humaneval/HumanEval.jsonl", 0));
}

TEST_F(CodePrograms, ReferencesOfPublicMbppPass) {
  if (public_files() == nullptr) {
    GTEST_SKIP() << "SMOE_BENCHMARKS does not name a folder with mbpp/mbpp.jsonl";
  }
  check_mbpp(read_rows(fs::path(public_files()) / "mbpp/mbpp.jsonl", 0));
}

}  // namespace
}  // namespace smoe::testing
