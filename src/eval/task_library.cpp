#include "smoe/eval/task_library.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "smoe/core/error.h"
#include "smoe/core/text_distance.h"
#include "smoe/eval/text_template.h"

namespace smoe {
namespace {

std::map<std::string, std::filesystem::path> yaml_files(const std::filesystem::path& folder) {
  std::map<std::string, std::filesystem::path> files;
  std::error_code no_folder;
  for (const auto& entry : std::filesystem::directory_iterator(folder, no_folder)) {
    if (entry.path().extension() == ".yaml") files[entry.path().stem().string()] = entry.path();
  }
  return files;
}

std::vector<std::string> keys(const std::map<std::string, std::filesystem::path>& files) {
  std::vector<std::string> names;
  for (const auto& [name, file] : files) names.push_back(name);
  return names;
}

bool fits(Metric metric, TaskKind kind) {
  switch (metric) {
    case Metric::kAccuracy:
      return kind != TaskKind::kRollingText;
    case Metric::kAccuracyCharacters:
    case Metric::kAccuracyBytes:
      return kind == TaskKind::kMultipleChoice;
    case Metric::kAccuracyCentered:
      return kind == TaskKind::kMultipleChoice || kind == TaskKind::kPartialEvaluation;
    case Metric::kGoldBitsPerByte:
      return kind != TaskKind::kRollingText;
    case Metric::kPerplexity:
      return kind == TaskKind::kLastWord;
    case Metric::kLoss:
    case Metric::kBitsPerByte:
    case Metric::kWordPerplexity:
    case Metric::kBytePerplexity:
      return kind == TaskKind::kRollingText;
  }
  return false;
}

void validate_row(const RowFormat& row, TaskKind kind, const std::string& prefix, ConfigProblems& problems) {
  const bool has_choices = kind == TaskKind::kMultipleChoice || kind == TaskKind::kPartialEvaluation;
  if (has_choices && row.choices.empty() == row.choices_field.empty()) {
    problems.add_rule(prefix + ".choices", prefix + ".choices_field",
                      "exactly one of the two must say where the choices come from");
  }
  const int gold_sources =
      !row.gold.labels_field.empty() + !row.gold.labels.empty() + row.gold.index.has_value();
  if (has_choices && (gold_sources > 1 || row.gold.field.empty() != row.gold.index.has_value())) {
    problems.add_rule(prefix + ".gold",
                      "the right choice is either an index, or a field that is a number or is found "
                      "in labels or in labels_field");
  }
  try {
    for (const std::string& text : row.choices) TextTemplate(text, "choices");
    TextTemplate(row.prompt, "prompt");
  } catch (const ConfigError& error) {
    problems.add_rule(prefix + ".prompt", error.what());
  }
}

}  // namespace

void validate(const TaskConfig& config, ConfigProblems& problems) {
  if (config.row.prompt.empty()) problems.add_rule("row.prompt", "a task needs a prompt template");
  validate_row(config.row, config.kind, "row", problems);
  if (!config.few_shot.row.prompt.empty())
    validate_row(config.few_shot.row, config.kind, "few_shot.row", problems);
  if (config.test_file.empty() && config.validation_file.empty()) {
    problems.add_rule("test_file", "validation_file", "one of the two must name the rows that are scored");
  }
  if (config.kind == TaskKind::kPartialEvaluation && config.blank.empty()) {
    problems.add_rule("blank", "a partial evaluation needs the mark that the options replace");
  }
  for (const Metric metric : config.metrics) {
    if (!fits(metric, config.kind)) {
      problems.add_rule("metrics", "kind",
                        fmt::format("the metric `{}` does not exist for the kind `{}`", enum_to_name(metric),
                                    enum_to_name(config.kind)));
    }
  }
  if (std::ranges::find(config.metrics, config.primary) == config.metrics.end()) {
    problems.add_rule("primary", "metrics", "the primary metric must be one of the metrics");
  }
}

std::filesystem::path TaskLibrary::default_folder() { return SMOE_TASK_FOLDER; }

TaskLibrary::TaskLibrary(const std::filesystem::path& folder)
    : folder_(folder),
      task_files_(yaml_files(folder / "tasks")),
      group_files_(yaml_files(folder / "groups")) {
  SMOE_CHECK(
      ConfigError, !task_files_.empty(),
      "{}: no task files here (expected tasks/*.yaml); name the folder configs/eval of the source tree with "
      "--task-folder",
      folder.string());
}

std::vector<std::string> TaskLibrary::task_names() const { return keys(task_files_); }
std::vector<std::string> TaskLibrary::group_names() const { return keys(group_files_); }

void TaskLibrary::unknown_name(const std::string& name) const {
  std::vector<std::string> names = task_names();
  for (const std::string& group : group_names()) names.push_back(group);
  throw ConfigError(
      fmt::format("unknown task `{}`;{} tasks: {}; groups: {}; text:FILE.jsonl scores plain text "
                  "(task folder {})",
                  name, detail::did_you_mean(name, names), fmt::join(task_names(), ", "),
                  fmt::join(group_names(), ", "), folder_.string()));
}

TaskConfig TaskLibrary::task(const std::string& name) const {
  const auto found = task_files_.find(name);
  if (found == task_files_.end()) unknown_name(name);
  TaskConfig task = read_config<TaskConfig>({found->second, {}});
  SMOE_CHECK(ConfigError, task.name == name, "{}: name is `{}`, but must be that of the file, `{}`",
             found->second.string(), task.name, name);
  return task;
}

TaskSelection TaskLibrary::select(const std::vector<std::string>& names) const {
  TaskSelection selection;
  std::set<std::string> seen;
  const auto add = [&](TaskConfig task) {
    if (seen.insert(task.name).second) selection.tasks.push_back(std::move(task));
  };
  for (const std::string& name : names) {
    if (name.starts_with("text:")) {
      add(text_task(name.substr(5)));
    } else if (const auto group = group_files_.find(name); group != group_files_.end()) {
      selection.groups.push_back(read_config<TaskGroupConfig>({group->second, {}}));
      for (const std::string& member : selection.groups.back().tasks) add(task(member));
    } else {
      add(task(name));
    }
  }
  return selection;
}

TaskConfig text_task(const std::filesystem::path& file) {
  TaskConfig task;
  task.name = "text:" + file.string();
  task.title = "text: " + file.stem().string();
  task.kind = TaskKind::kRollingText;
  // Absolute, so that it is not looked for below the data folder.
  task.test_file = std::filesystem::absolute(file).string();
  task.row.prompt = "{text}";
  task.metrics = {Metric::kLoss, Metric::kBitsPerByte, Metric::kWordPerplexity, Metric::kBytePerplexity};
  task.primary = Metric::kBitsPerByte;
  return task;
}

}  // namespace smoe
