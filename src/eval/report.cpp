#include <algorithm>
#include <cmath>

#include "smoe/core/error.h"
#include "smoe/core/table.h"
#include "smoe/eval/results.h"

namespace smoe {
namespace {

std::string cell(const MetricResult& metric, const Estimate& estimate, bool with_sign) {
  // Shares are shown in percent, as papers do; the results file keeps the plain numbers.
  const double scale = metric.is_share ? 100.0 : 1.0;
  const bool is_large = metric.name == enum_to_name(Metric::kPerplexity) ||
                        metric.name == enum_to_name(Metric::kWordPerplexity);
  const int digits = metric.is_share || is_large ? 2 : 4;
  const double value = scale * estimate.value;
  const double error = scale * estimate.standard_error;
  // Perplexities of untrained models have dozens of digits.
  const auto text = [&](double number) {
    return std::abs(number) < 1e6 ? fmt::format("{:.{}f}", number, digits) : fmt::format("{:.2e}", number);
  };
  return fmt::format("{}{} ±{}", with_sign && value >= 0.0 ? "+" : "", text(value), text(error));
}

void add_metric_rows(Table& table, const std::string& title, const std::string& rows,
                     const std::string& label, const MetricResult& result) {
  std::vector<std::string> values = {title, label, rows};
  for (const Estimate& estimate : result.budgets) values.push_back(cell(result, estimate, false));
  table.add_row(values);
  if (result.differences.empty()) return;
  std::vector<std::string> changes = {"", "  change", "", ""};
  for (const Estimate& difference : result.differences) changes.push_back(cell(result, difference, true));
  table.add_row(changes);
}

Table build_table(const EvaluationResults& results) {
  std::vector<std::string> header = {"task", "metric", "rows"};
  for (size_t i = 0; i < results.budget_names.size(); ++i) {
    header.push_back(results.experts_per_layer.empty()
                         ? results.budget_names[i]
                         : fmt::format("{} (k={})", results.budget_names[i], results.experts_per_layer[i]));
  }
  Table table(header);
  for (size_t i = 0; i < results.tasks.size(); ++i) {
    const TaskResult& task = results.tasks[i];
    if (i > 0) table.add_separator();
    std::string title =
        task.num_shots > 0 ? fmt::format("{} ({}-shot)", task.title, task.num_shots) : task.title;
    std::string rows = std::to_string(task.num_rows);
    for (const MetricResult& result : task.metrics) {
      const std::string label = result.name + (result.name == task.primary ? " *" : "");
      add_metric_rows(table, std::exchange(title, ""), std::exchange(rows, ""), label, result);
    }
    for (const SubgroupResult& group : task.subgroups) {
      add_metric_rows(table, "", std::to_string(group.num_rows),
                      fmt::format("{}, {}", group.metric.name, group.name), group.metric);
    }
  }
  for (const GroupResult& group : results.groups) {
    table.add_separator();
    add_metric_rows(table, group.title, "", fmt::format("mean of {} *", group.tasks.size()), group.mean);
  }
  return table;
}

std::string legend(const EvaluationResults& results) {
  std::string text =
      "Accuracies and other shares in percent; ± is one standard error; * marks a task's primary metric.";
  if (results.budget_names.size() > 1) {
    text +=
        "\nchange: difference from the budget to the left, with the standard error of the paired difference.";
  }
  for (const TaskResult& task : results.tasks) {
    if (task.counts.truncated > 0) {
      text += fmt::format(
          "\nTRUNCATED: {}: {} contexts do not fit into {} tokens (--max-length) and lost their beginning",
          task.name, task.counts.truncated, results.context.max_length);
    }
    if (task.counts.empty_continuations > 0) {
      text += fmt::format(
          "\nNOTE: {}: {} continuations have no token of their own after their context and were "
          "encoded by themselves",
          task.name, task.counts.empty_continuations);
    }
  }
  for (const TaskFailure& failure : results.failures) {
    text += fmt::format("\nNOT SCORED: {}: {}", failure.name, failure.message);
  }
  for (const std::string& note : results.notes) text += "\n" + note;
  return text;
}

nlohmann::ordered_json estimate_json(const Estimate& estimate) {
  return {{"value", estimate.value}, {"stderr", estimate.standard_error}};
}

nlohmann::ordered_json metric_json(const EvaluationResults& results, const MetricResult& result) {
  nlohmann::ordered_json json = {{"is_share", result.is_share}, {"exponential", result.exponential}};
  for (size_t i = 0; i < result.budgets.size(); ++i) {
    json["budgets"][results.budget_names[i]] = estimate_json(result.budgets[i]);
  }
  for (size_t i = 0; i < result.differences.size(); ++i) {
    nlohmann::ordered_json difference = {{"from", results.budget_names[i]},
                                         {"to", results.budget_names[i + 1]}};
    difference.update(estimate_json(result.differences[i]));
    json["paired_differences"].push_back(difference);
  }
  return json;
}

nlohmann::ordered_json context_json(const EvaluationContext& context) {
  return {{"checkpoint", context.checkpoint},
          {"checkpoint_sha256", context.checkpoint_hash},
          {"tokenizer_sha256", context.tokenizer_hash},
          {"smoe_version", context.code_version},
          {"lm_evaluation_harness_version", context.harness_version},
          {"device", context.device},
          {"dtype", context.dtype},
          {"softmax_dtype", "float32"},
          {"bos_policy", context.bos_policy},
          {"added_token", context.added_token},
          {"routing", context.routing},
          {"segment_length", context.segment_length},
          {"max_length", context.max_length},
          {"batch_tokens", context.batch_tokens},
          {"shared_prefixes", context.shared_prefixes},
          {"num_threads", context.num_threads},
          {"limit", context.limit},
          {"fewshot_seed", context.seed},
          {"chat_template", context.chat_template},
          {"chat_layout", context.chat_layout},
          {"system_prompt", context.system_prompt},
          {"code_sandbox", context.sandbox}};
}

nlohmann::ordered_json task_json(const EvaluationResults& results, const TaskResult& task) {
  nlohmann::ordered_json json = {{"title", task.title},
                                 {"kind", enum_to_name(task.kind)},
                                 {"data_file", task.data_file},
                                 {"data_sha256", task.data_hash},
                                 {"task_config_sha256", task.task_hash},
                                 {"rows", task.num_rows},
                                 {"num_fewshot", task.num_shots},
                                 {"requests", task.counts.requests},
                                 {"truncated_contexts", task.counts.truncated},
                                 {"empty_continuations", task.counts.empty_continuations},
                                 {"seconds", task.seconds},
                                 {"primary", task.primary}};
  json["shared_prefixes"] = {{"prefixes", task.shared_prefixes.prefixes},
                             {"prefix_tokens", task.shared_prefixes.prefix_tokens},
                             {"spared_tokens", task.shared_prefixes.spared_tokens}};
  if (!task.sample_log.empty()) json["samples"] = task.sample_log;
  if (task.generation) {
    json["generation"] = {{"max_new_tokens", task.generation->max_new_tokens},
                          {"answers", task.generation->answers},
                          {"new_tokens", task.generation->new_tokens},
                          {"ended_by_length", task.generation->ended_by_length},
                          {"programs", task.generation->programs},
                          {"timed_out_programs", task.generation->timed_out_programs},
                          {"samples", task.generation->samples},
                          {"temperature", task.generation->temperature},
                          {"top_p", task.generation->top_p},
                          {"seed", task.generation->seed}};
  }
  for (size_t i = 0; i < task.answer_files.size(); ++i) {
    json["answers"][results.budget_names[i]] = task.answer_files[i];
  }
  for (const MetricResult& result : task.metrics) {
    json["metrics"][result.name] = metric_json(results, result);
  }
  for (const SubgroupResult& group : task.subgroups) {
    json["subgroups"][group.name] = {{"rows", group.num_rows}};
    json["subgroups"][group.name][group.metric.name] = metric_json(results, group.metric);
  }
  return json;
}

}  // namespace

const MetricResult& TaskResult::primary_result() const {
  const auto found = std::ranges::find(metrics, primary, &MetricResult::name);
  SMOE_ASSERT(found != metrics.end());
  return *found;
}

nlohmann::ordered_json to_json(const EvaluationResults& results) {
  nlohmann::ordered_json json;
  json["context"] = context_json(results.context);
  for (size_t i = 0; i < results.budget_names.size(); ++i) {
    nlohmann::ordered_json budget = {{"name", results.budget_names[i]}};
    if (!results.experts_per_layer.empty()) budget["experts_per_layer"] = results.experts_per_layer[i];
    json["budgets"].push_back(budget);
  }
  json["complete"] = results.is_complete();
  json["failures"] = nlohmann::ordered_json::array();
  for (const TaskFailure& failure : results.failures) {
    json["failures"].push_back({{"task", failure.name}, {"message", failure.message}});
  }
  json["tasks"] = nlohmann::ordered_json::object();
  for (const TaskResult& task : results.tasks) json["tasks"][task.name] = task_json(results, task);
  for (const GroupResult& group : results.groups) {
    nlohmann::ordered_json& entry = json["groups"][group.name];
    entry = {{"title", group.title}, {"tasks", group.tasks}};
    entry.update(metric_json(results, group.mean));
  }
  return json;
}

std::string to_terminal_table(const EvaluationResults& results) {
  return build_table(results).to_terminal() + legend(results) + "\n";
}

std::string to_markdown(const EvaluationResults& results) {
  const EvaluationContext& context = results.context;
  return fmt::format(
      "# Evaluation of {}\n\n{}\n{}\n\nsmoe {}, routing {} with segments of {}, BOS policy {}, maximum "
      "length {}, {}; conventions of lm-evaluation-harness {}.\n",
      context.checkpoint, build_table(results).to_markdown(), legend(results), context.code_version,
      context.routing, context.segment_length, context.bos_policy, context.max_length,
      context.limit > 0 ? fmt::format("first {} rows of each task", context.limit) : "all rows",
      context.harness_version);
}

}  // namespace smoe
