#include "smoe/sweep/sweep_results.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "smoe/core/json.h"
#include "smoe/sweep/run_state.h"
#include "smoe/train/compute_account.h"
#include "smoe/train/metrics_file.h"

namespace smoe {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Values = std::vector<std::pair<std::string, double>>;

std::vector<std::string> split_path(const std::string& path) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t end = path.find('/'); end != std::string::npos; end = path.find('/', begin)) {
    parts.push_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  parts.push_back(path.substr(begin));
  return parts;
}

// The entry `key` of `json`; the error lists the keys there are.
template <class AnyJson>
const AnyJson& entry(const AnyJson& json, const std::string& key, const std::string& where) {
  if (json.is_object() && json.contains(key)) return json.at(key);
  std::vector<std::string> keys;
  if (json.is_object()) {
    for (const auto& [name, value] : json.items()) keys.push_back(name);
  }
  throw DataError(fmt::format("{}: there is no `{}`, only [{}]", where, key, fmt::join(keys, ", ")));
}

Values numbers_by_budget(const Json& json) {
  Values values;
  for (const auto& [budget, value] : json.items()) values.emplace_back(budget, value.template get<double>());
  return values;
}

std::optional<Json> last_validation(const PlannedRun& run, const fs::path& file) {
  std::optional<Json> last;
  for (Json& line : read_metrics(file)) {
    if (line["kind"] == "validation" && line.at("step") == run.config.steps) last = std::move(line);
  }
  return last;
}

Values mean_over_sources(const Json& sources, const std::string& metric, const std::string& where) {
  Values sums;
  for (const auto& [source, figures] : sources.items()) {
    const Values values = numbers_by_budget(entry(figures, metric, where));
    if (sums.empty()) {
      sums = values;
    } else {
      for (size_t i = 0; i < sums.size(); ++i) sums[i].second += values.at(i).second;
    }
  }
  for (auto& [budget, sum] : sums) sum /= static_cast<double>(sources.size());
  return sums;
}

std::optional<RunMetric> validation_metric(const PlannedRun& run, const std::vector<std::string>& parts) {
  const fs::path file = fs::path(run.config.run_folder) / "metrics.jsonl";
  const std::optional<Json> line = last_validation(run, file);
  if (!line) return std::nullopt;
  const std::string where = file.string();
  if (parts[0] == "router") {
    RunMetric metric;
    // A dense model has no router, which is no mistake in a table that compares it with others.
    if (!line->contains("router")) return metric;
    for (const auto& [budget, panel] : line->at("router").items()) {
      metric.values.emplace_back(budget, entry(panel, parts[1], where).template get<double>());
    }
    return metric;
  }
  const Json& sources = line->at("sources");
  RunMetric metric{parts[2] == "loss" ? MetricUnit::kNats : MetricUnit::kPlain, {}};
  metric.values = parts[1] == "mean"
                      ? mean_over_sources(sources, parts[2], where)
                      : numbers_by_budget(entry(entry(sources, parts[1], where), parts[2], where));
  return metric;
}

RunMetric cost_metric(const PlannedRun& run, const RunState& state, const std::string& name) {
  const ComputeAccount account = account_compute(run.config);
  const auto by_budget = [&](double BudgetCompute::*value) {
    RunMetric metric{MetricUnit::kCount, {}};
    for (const BudgetCompute& budget : account.budgets)
      metric.values.emplace_back(budget.name, budget.*value);
    return metric;
  };
  const auto of_run = [](double value) { return RunMetric{MetricUnit::kCount, {{"run", value}}}; };
  if (name == "active") return by_budget(&BudgetCompute::active);
  if (name == "tokens") return by_budget(&BudgetCompute::tokens);
  if (name == "flops_6nt") return by_budget(&BudgetCompute::flops_6nt);
  if (name == "flops_exact") return by_budget(&BudgetCompute::flops_exact);
  if (name == "total_flops_6nt") return of_run(account.flops_6nt());
  if (name == "total_flops_exact") return of_run(account.flops_exact());
  if (name == "core_seconds") return of_run(state.core_seconds);
  if (name == "wall_seconds") return of_run(state.wall_seconds);
  throw DataError(
      fmt::format("cost/{} is no metric; there are active, tokens, flops_6nt, flops_exact, "
                  "total_flops_6nt, total_flops_exact, core_seconds, wall_seconds",
                  name));
}

// A text is called by its file's name without the ending: its task's name is a whole path.
std::string task_name(const nlohmann::json& tasks, const std::string& name) {
  for (const auto& [task, result] : tasks.items()) {
    if (task.starts_with("text:") && fs::path(task.substr(5)).stem() == name) return task;
  }
  return name;
}

std::optional<RunMetric> evaluation_metric(const SweepPlan& plan, const PlannedRun& run,
                                           const RunState& state, const std::vector<std::string>& parts) {
  const auto evaluation = std::ranges::find(plan.config.evaluations, parts[0], &SweepEvaluation::name);
  SMOE_ASSERT(evaluation != plan.config.evaluations.end());
  const auto done = state.evaluations.find(parts[0]);
  // Results of an evaluation that was defined otherwise must not stand in one column with new ones.
  if (done == state.evaluations.end() || done->second != evaluation_hash(*evaluation)) return std::nullopt;
  const fs::path file = plan.results_file(run, *evaluation);
  const nlohmann::json json = read_json_file(file);
  const std::string where = file.string();
  const bool is_group = json.contains("groups") && json["groups"].contains(parts[1]);
  nlohmann::json result;
  if (is_group) {
    result = json["groups"][parts[1]];
  } else {
    const nlohmann::json& tasks = entry(json, "tasks", where);
    const nlohmann::json& task = entry(tasks, task_name(tasks, parts[1]), where);
    const std::string name = parts.size() == 3 ? parts[2] : task.at("primary").get<std::string>();
    result = entry(task.at("metrics"), name, where);
  }
  RunMetric metric{result.at("is_share").get<bool>() ? MetricUnit::kShare : MetricUnit::kPlain, {}};
  for (const auto& budget : json.at("budgets")) {
    const std::string name = budget.at("name").get<std::string>();
    metric.values.emplace_back(name, result.at("budgets").at(name).at("value").get<double>());
  }
  return metric;
}

}  // namespace

std::optional<RunMetric> run_metric(const SweepPlan& plan, const PlannedRun& run, const std::string& path) {
  const std::optional<RunState> state = read_run_state(plan.state_file(run));
  if (!state || !state->trained || !training_differences(plan, run, *state).empty()) return std::nullopt;
  const std::vector<std::string> parts = split_path(path);
  std::optional<RunMetric> metric;
  if (parts[0] == "validation" || parts[0] == "router") {
    metric = validation_metric(run, parts);
  } else if (parts[0] == "cost") {
    metric = cost_metric(run, *state, parts[1]);
  } else {
    metric = evaluation_metric(plan, run, *state, parts);
  }
  if (!metric || plan.config.rows.empty()) return metric;
  for (const std::string& rename : plan.config.rows[run.row].rename_budgets) {
    const size_t equals = rename.find('=');
    for (auto& [budget, value] : metric->values) {
      if (budget == rename.substr(0, equals)) budget = rename.substr(equals + 1);
    }
  }
  return metric;
}

}  // namespace smoe
