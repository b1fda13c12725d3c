#include "smoe/eval/task_library.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <set>

#include "smoe/core/error.h"
#include "smoe/core/text_distance.h"
#include "smoe/eval/ifeval_scores.h"
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
      return kind != TaskKind::kRollingText && !is_generation(kind);
    case Metric::kAccuracyCharacters:
    case Metric::kAccuracyBytes:
      return kind == TaskKind::kMultipleChoice;
    case Metric::kAccuracyCentered:
      return kind == TaskKind::kMultipleChoice || kind == TaskKind::kPartialEvaluation;
    case Metric::kGoldBitsPerByte:
      return kind != TaskKind::kRollingText && !is_generation(kind);
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
    TextTemplate(row.target, "target");
  } catch (const ConfigError& error) {
    problems.add_rule(prefix + ".prompt", error.what());
  }
}

void validate_answers(const TaskConfig& config, ConfigProblems& problems) {
  if (config.row.target.empty() == config.row.targets_field.empty()) {
    problems.add_rule("row.target", "row.targets_field",
                      "exactly one of the two must say what the right answers are");
  }
  if (config.answers.empty()) problems.add_rule("answers", "a generate task needs a way to read answers");
  std::set<std::string> names;
  for (const AnswerConfig& answer : config.answers) {
    if (!names.insert(answer.name).second) {
      problems.add_rule("answers", fmt::format("two readings are called `{}`", answer.name));
    }
    if ((answer.reading == AnswerReading::kRegex) == answer.regex.pattern.empty()) {
      problems.add_rule("answers", fmt::format("the reading `{}` {}", answer.name,
                                               answer.regex.pattern.empty()
                                                   ? "needs regex.pattern"
                                                   : "has a regex, which only the reading regex uses"));
    }
  }
  try {
    ExactMatch check(config.exact_match);
    for (const AnswerConfig& answer : config.answers) {
      if (answer.reading == AnswerReading::kRegex) RegexFilter filter(answer.regex);
    }
  } catch (const Error& error) {
    problems.add_rule("answers", "exact_match", error.what());
  }
}

void validate_tool_call(const TaskConfig& config, ConfigProblems& problems) {
  const ToolCallConfig& tool = config.tool_call;
  if (tool.instructions.find("{tools}") == std::string::npos) {
    problems.add_rule("tool_call.instructions", "must hold {tools}, where the functions are put");
  }
  if (tool.open.empty() || tool.close.empty()) {
    problems.add_rule("tool_call.open", "tool_call.close", "a call needs marks around it");
  }
  if (!config.row.prompt.empty() || !config.row.target.empty() || !config.row.targets_field.empty()) {
    problems.add_rule("row",
                      "the kind tool_call reads `messages`, `tools` and `target_message` of a row itself");
  }
}

void validate_subgroups(const TaskConfig& config, ConfigProblems& problems) {
  if (config.subgroup_field.empty() != config.subgroups.empty()) {
    problems.add_rule("subgroup_field", "subgroups", "one needs the other");
  }
  std::set<std::string> values;
  for (const SubgroupConfig& group : config.subgroups) {
    for (const std::string& value : group.values) {
      if (values.insert(value).second) continue;
      problems.add_rule("subgroups", fmt::format("`{}` belongs to two subgroups", value));
    }
  }
}

void validate_generation(const TaskConfig& config, ConfigProblems& problems) {
  if (!config.metrics.empty()) {
    problems.add_rule("metrics",
                      fmt::format("the kind `{}` names its metrics by itself ({}); leave it out",
                                  enum_to_name(config.kind), fmt::join(metric_names(config), ", ")));
  }
  if (config.generation.top_p <= 0.0 || config.generation.top_p > 1.0) {
    problems.add_rule("generation.top_p", "must lie above 0 and at most at 1");
  }
  if (std::ranges::count(config.generation.stops, "") > 0) {
    problems.add_rule("generation.stops", "an empty text would end every answer at once");
  }
  if (config.kind == TaskKind::kGenerate) validate_answers(config, problems);
  if (config.generation.samples > 1 && config.generation.temperature == 0.0) {
    problems.add_rule("generation.samples", "generation.temperature",
                      "answers drawn at temperature 0 are all the same");
  }
  if (config.kind == TaskKind::kJudged && config.generation.samples > 1) {
    problems.add_rule("generation.samples", "a judge reads one answer to each row");
  }
  if (config.kind == TaskKind::kToolCall) validate_tool_call(config, problems);
  if (config.kind != TaskKind::kCode) return;
  if (config.code.pass_at.empty()) problems.add_rule("code.pass_at", "needs at least one k");
  for (const int64_t k : config.code.pass_at) {
    if (k < 1 || k > config.generation.samples) {
      problems.add_rule(
          "code.pass_at", "generation.samples",
          fmt::format("pass@{} needs at least {} samples, there are {}", k, k, config.generation.samples));
    }
  }
}

}  // namespace

std::vector<std::string> metric_names(const TaskConfig& config) {
  std::vector<std::string> names;
  switch (config.kind) {
    case TaskKind::kGenerate:
      for (const AnswerConfig& answer : config.answers) {
        names.push_back(answer.name.empty() ? "exact_match" : "exact_match," + answer.name);
      }
      break;
    case TaskKind::kCode:
      for (const int64_t k : config.code.pass_at) names.push_back(fmt::format("pass@{}", k));
      break;
    case TaskKind::kInstruction:
      for (const IfevalScore& score : ifeval_scores()) names.emplace_back(score.name);
      break;
    case TaskKind::kToolCall:
      names = {"accuracy",     "func_name_accuracy", "strict_accuracy",      "lenient_accuracy",
               "bow_accuracy", "func_intent_recall", "func_intent_precision"};
      break;
    case TaskKind::kJudged:
      names = {"characters"};
      break;
    default:
      for (const Metric metric : config.metrics) names.emplace_back(enum_to_name(metric));
  }
  return names;
}

void validate(const TaskConfig& config, ConfigProblems& problems) {
  if (config.row.prompt.empty() && config.kind != TaskKind::kToolCall) {
    problems.add_rule("row.prompt", "a task needs a prompt template");
  }
  validate_subgroups(config, problems);
  validate_row(config.row, config.kind, "row", problems);
  if (!config.few_shot.row.prompt.empty())
    validate_row(config.few_shot.row, config.kind, "few_shot.row", problems);
  if (config.test_file.empty() && config.validation_file.empty()) {
    problems.add_rule("test_file", "validation_file", "one of the two must name the rows that are scored");
  }
  if (config.kind == TaskKind::kPartialEvaluation && config.blank.empty()) {
    problems.add_rule("blank", "a partial evaluation needs the mark that the options replace");
  }
  if (is_generation(config.kind)) validate_generation(config, problems);
  for (const Metric metric : config.metrics) {
    if (!is_generation(config.kind) && !fits(metric, config.kind)) {
      problems.add_rule("metrics", "kind",
                        fmt::format("the metric `{}` does not exist for the kind `{}`", enum_to_name(metric),
                                    enum_to_name(config.kind)));
    }
  }
  const std::vector<std::string> names = metric_names(config);
  if (std::ranges::find(names, config.primary) == names.end()) {
    problems.add_rule("primary", "metrics",
                      fmt::format("the primary metric `{}` must be one of the metrics: {}", config.primary,
                                  fmt::join(names, ", ")));
  }
}

void validate(const TaskGroupConfig& config, ConfigProblems& problems) {
  if (config.kind == TaskGroupKind::kMean && (config.tasks.empty() || !config.groups.empty())) {
    problems.add_rule("tasks", "groups", "a mean needs tasks, and is not taken over groups");
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
      "--task-folder of smoe-eval, `evaluation.task_folder` of a training run",
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
  const std::function<void(const std::string&)> add_name = [&](const std::string& name) {
    if (name.starts_with("text:")) {
      add(text_task(name.substr(5)));
    } else if (const auto file = group_files_.find(name); file != group_files_.end()) {
      // Also ends a group that holds itself.
      if (std::ranges::find(selection.groups, name, &TaskGroupConfig::name) != selection.groups.end()) return;
      const auto group = read_config<TaskGroupConfig>({file->second, {}});
      SMOE_CHECK(ConfigError, group.name == name, "{}: name is `{}`, but must be that of the file, `{}`",
                 file->second.string(), group.name, name);
      selection.groups.push_back(group);
      for (const std::string& member : group.groups) add_name(member);
      for (const std::string& member : group.tasks) add(task(member));
    } else {
      add(task(name));
    }
  };
  for (const std::string& name : names) add_name(name);
  return selection;
}

TaskSelection TaskLibrary::select_usable(const std::vector<std::string>& names,
                                         std::vector<UnusableName>& unusable) const {
  std::vector<std::string> usable;
  for (const std::string& name : names) {
    try {
      select({name});
      usable.push_back(name);
    } catch (const ConfigError& error) {
      unusable.push_back({name, error.what()});
    }
  }
  return select(usable);
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
  task.primary = enum_to_name(Metric::kBitsPerByte);
  return task;
}

}  // namespace smoe
