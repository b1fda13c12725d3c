#include "smoe/eval/task_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "eval/eval_test_support.h"
#include "smoe/core/error.h"

namespace smoe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(TaskLibrary, EveryShippedTaskAndGroupIsValid) {
  const TaskLibrary library(source_folder() / "configs/eval");
  EXPECT_GE(library.task_names().size(), 7u);
  for (const std::string& name : library.task_names()) EXPECT_NO_THROW(library.task(name)) << name;
  for (const std::string& name : library.group_names()) EXPECT_NO_THROW(library.select({name})) << name;
}

TEST(TaskLibrary, TheBuiltInFolderIsTheSourceTrees) {
  EXPECT_EQ(TaskLibrary::default_folder(), source_folder() / "configs/eval");
}

TEST(TaskLibrary, AGroupExpandsToItsTasksOnce) {
  const TaskSelection selection =
      TaskLibrary(source_folder() / "configs/eval").select({"piqa", "core_en_0s", "sciq"});
  EXPECT_EQ(selection.tasks.size(), 7u);
  EXPECT_EQ(selection.tasks.front().name, "piqa");
  ASSERT_EQ(selection.groups.size(), 1u);
  EXPECT_EQ(selection.groups.front().tasks.size(), 7u);
}

TEST(TaskLibrary, AnUnknownNameGetsTheNearestOne) {
  const TaskLibrary library(source_folder() / "configs/eval");
  EXPECT_THAT(
      error_text<ConfigError>([&] { library.select({"hellaswga"}); }),
      AllOf(HasSubstr("`hellaswga`"), HasSubstr("did you mean `hellaswag`"), HasSubstr("core_en_0s")));
}

TEST(TaskLibrary, AFolderWithoutTasksIsRefused) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_text<ConfigError>([&] { TaskLibrary library(folder.path()); }),
              HasSubstr("--task-folder"));
}

// Reads a task made of `lines` and returns the error.
std::string task_error(const std::string& lines) {
  const TemporaryFolder folder;
  write_text(folder.path() / "tasks/x.yaml", "name: x\n" + lines);
  return error_text<ConfigError>([&] { TaskLibrary(folder.path()).task("x"); });
}

TEST(TaskLibrary, TasksThatMakeNoSenseAreRefusedWithAllReasons) {
  EXPECT_EQ(
      task_error(
          "test_file: a.jsonl\nrow: {prompt: '{q}', choices_field: c, gold: {field: g}}\nmetrics: [acc]\n"),
      "");
  EXPECT_THAT(
      task_error("row: {prompt: '{q}', gold: {field: g, index: 1}}\nmetrics: [perplexity]\nprimary: acc\n"),
      AllOf(HasSubstr("row.choices"), HasSubstr("row.gold"), HasSubstr("test_file"),
            HasSubstr("`perplexity` does not exist for the kind `multiple_choice`"), HasSubstr("primary")));
  EXPECT_THAT(task_error("test_file: a\nkind: last_word\nrow: {prompt: '{q'}\nmetrics: [acc]\n"),
              HasSubstr("unbalanced"));
  EXPECT_THAT(task_error("kind: multiple_choise\n"), HasSubstr("multiple_choice"));
  EXPECT_THAT(task_error("row: {prompt_filters: [capitalise]}\n"), HasSubstr("capitalize"));
}

TEST(TaskLibrary, TheNameMustBeThatOfTheFile) {
  const TemporaryFolder folder;
  write_text(folder.path() / "tasks/x.yaml",
             "name: y\ntest_file: a\nkind: last_word\nrow: {prompt: '{t}'}\nmetrics: [acc]\n");
  EXPECT_THAT(error_text<ConfigError>([&] { TaskLibrary(folder.path()).task("x"); }),
              AllOf(HasSubstr("`y`"), HasSubstr("`x`")));
}

}  // namespace
}  // namespace smoe
