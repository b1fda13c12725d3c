#include "smoe/sweep/sweep_config.h"

#include <algorithm>
#include <set>

namespace smoe {
namespace {

// Rows and labels become parts of folder names.
bool is_file_name(const std::string& text) {
  return !text.empty() && text.find('/') == std::string::npos && text.front() != '.' &&
         std::none_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20; });
}

void check_axis(const SweepAxis& axis, const std::string& key, ConfigProblems& problems) {
  if (axis.key.empty()) problems.add_rule(key + ".key", "is empty; name a key of the run's config");
  if (axis.values.empty()) problems.add_rule(key + ".values", "is empty; give at least one value");
  if (!axis.labels.empty() && axis.labels.size() != axis.values.size()) {
    problems.add_rule(key + ".labels", key + ".values",
                      fmt::format("{} labels for {} values", axis.labels.size(), axis.values.size()));
  }
  for (const std::string& label : axis.labels.empty() ? axis.values : axis.labels) {
    if (is_file_name(label)) continue;
    problems.add_rule(key + ".values",
                      fmt::format("`{}` can't be part of a folder's name; give `labels`", label));
  }
}

void check_metric(const SweepMetric& metric, const std::set<std::string>& evaluations, const std::string& key,
                  ConfigProblems& problems) {
  const std::string kind = metric.path.substr(0, metric.path.find('/'));
  const auto parts = std::count(metric.path.begin(), metric.path.end(), '/') + 1;
  const bool is_known = (kind == "validation" && parts == 3) ||
                        ((kind == "cost" || kind == "router") && parts == 2) ||
                        (evaluations.contains(kind) && (parts == 2 || parts == 3));
  if (is_known) return;
  problems.add_rule(
      key + ".path",
      fmt::format("`{}` is no metric; write validation/SOURCE/loss, validation/mean/bits_per_byte, "
                  "router/load_entropy, cost/core_seconds, or EVALUATION/TASK[/METRIC] with one of "
                  "the evaluations [{}]",
                  metric.path, fmt::join(evaluations, ", ")));
}

template <class Item>
void check_names(const std::vector<Item>& items, const std::string& list, ConfigProblems& problems) {
  std::set<std::string> seen;
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string key = fmt::format("{}.{}.name", list, i);
    if (!is_file_name(items[i].name)) {
      problems.add_rule(key, fmt::format("`{}` can't be the name of a folder", items[i].name));
    } else if (!seen.insert(items[i].name).second) {
      problems.add_rule(key, fmt::format("`{}` is there twice", items[i].name));
    }
  }
}

}  // namespace

void validate(const SweepConfig& config, ConfigProblems& problems) {
  if (config.folder.empty()) problems.add_rule("folder", "is empty; give the folder that receives the runs");
  const bool rows_have_bases =
      !config.rows.empty() &&
      std::ranges::all_of(config.rows, [](const SweepRow& row) { return !row.base.empty(); });
  if (config.base.empty() && !rows_have_bases) {
    problems.add_rule("base", "is empty; name the config of smoe-train that the runs vary");
  }
  if (config.seeds.empty()) problems.add_rule("seeds", "is empty; give at least one seed");
  if (std::set(config.seeds.begin(), config.seeds.end()).size() != config.seeds.size()) {
    problems.add_rule("seeds", "has a seed twice; the second run would be the first one again");
  }
  for (size_t i = 0; i < config.axes.size(); ++i) {
    check_axis(config.axes[i], fmt::format("axes.{}", i), problems);
  }
  check_names(config.rows, "rows", problems);
  for (size_t i = 0; i < config.rows.size(); ++i) {
    for (const std::string& pair : config.rows[i].rename_budgets) {
      if (pair.find('=') != std::string::npos) continue;
      problems.add_rule(fmt::format("rows.{}.rename_budgets", i),
                        fmt::format("`{}` is not of the form NAME=COLUMN", pair));
    }
  }
  check_names(config.evaluations, "evaluations", problems);
  std::set<std::string> evaluations;
  for (const SweepEvaluation& evaluation : config.evaluations) evaluations.insert(evaluation.name);
  for (const std::string reserved : {"validation", "router", "cost"}) {
    if (evaluations.contains(reserved)) {
      problems.add_rule("evaluations", fmt::format("`{}` names other metrics; take another name", reserved));
    }
  }
  for (size_t i = 0; i < config.evaluations.size(); ++i) {
    if (config.evaluations[i].tasks.empty()) {
      problems.add_rule(fmt::format("evaluations.{}.tasks", i), "is empty; name tasks of smoe-eval");
    }
  }
  for (size_t i = 0; i < config.metrics.size(); ++i) {
    check_metric(config.metrics[i], evaluations, fmt::format("metrics.{}", i), problems);
  }
}

}  // namespace smoe
