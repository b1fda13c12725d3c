// The folder of task files: finds tasks and groups by name and checks what a single file cannot say by types
// alone.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "smoe/eval/task_config.h"

namespace smoe {

// What a list of names means: tasks in order without repeats, and the groups among the names.
struct TaskSelection {
  std::vector<TaskConfig> tasks;
  std::vector<TaskGroupConfig> groups;
};

// A name that stands for no usable task, and why.
struct UnusableName {
  std::string name;
  std::string message;
};

class TaskLibrary {
 public:
  // Lists FOLDER/tasks/*.yaml and FOLDER/groups/*.yaml. Throws ConfigError if the folder holds no task.
  explicit TaskLibrary(const std::filesystem::path& folder);

  // The task folder of the source tree this library was built from.
  static std::filesystem::path default_folder();

  // Reads and checks one task. Throws ConfigError: an unknown name with the nearest known ones, or every
  // problem found in the file.
  TaskConfig task(const std::string& name) const;
  // Tasks for a list of task names, group names and text:FILE.jsonl.
  TaskSelection select(const std::vector<std::string>& names) const;
  // The same without the names that are unknown or whose files have mistakes: these are added to `unusable`.
  TaskSelection select_usable(const std::vector<std::string>& names,
                              std::vector<UnusableName>& unusable) const;

  std::vector<std::string> task_names() const;
  std::vector<std::string> group_names() const;

 private:
  [[noreturn]] void unknown_name(const std::string& name) const;

  std::filesystem::path folder_;
  std::map<std::string, std::filesystem::path> task_files_;
  std::map<std::string, std::filesystem::path> group_files_;
};

// An ad-hoc rolling_text task over the field `text` of a JSONL file.
TaskConfig text_task(const std::filesystem::path& file);

}  // namespace smoe
