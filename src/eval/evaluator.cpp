#include "smoe/eval/evaluator.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <sstream>

#include "eval/sample_log.h"
#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/core/progress.h"
#include "smoe/core/tool.h"

namespace smoe {
namespace {

// A task whose rows have been read and encoded.
struct PreparedTask {
  const TaskConfig* config = nullptr;
  std::vector<EvaluationItem> items;
  std::vector<Request> requests;
  std::vector<std::pair<size_t, size_t>> owner_of_request;  // (item, choice)
  TaskResult result;
};

PreparedTask prepare(const TaskConfig& task, const Tokenizer& tokenizer, const EvaluationOptions& options) {
  PreparedTask prepared;
  prepared.config = &task;
  const bool is_text = task.kind == TaskKind::kRollingText;
  const int64_t num_shots = is_text ? 0 : options.num_shots.value_or(task.few_shot.shots);
  prepared.items = build_items(task, {options.data_folder, options.limit, num_shots, options.seed});
  PairEncoder encoder(tokenizer, options.bos, options.max_length);
  for (size_t i = 0; i < prepared.items.size(); ++i) {
    const EvaluationItem& item = prepared.items[i];
    for (size_t choice = 0; choice < item.pairs.size(); ++choice) {
      std::vector<Request> requests =
          is_text ? encoder.encode_rolling(item.pairs[choice].continuation)
                  : std::vector<Request>{encoder.encode(item.pairs[choice], item.where)};
      for (Request& request : requests) {
        request.group = static_cast<int64_t>(i);
        prepared.requests.push_back(std::move(request));
        prepared.owner_of_request.emplace_back(i, choice);
      }
    }
  }
  SMOE_CHECK(DataError, !prepared.requests.empty(), "task {}: {} holds no text to score", task.name,
             scored_file(task, options.data_folder).string());
  TaskResult& result = prepared.result;
  result.name = task.name;
  result.title = task.title.empty() ? task.name : task.title;
  result.kind = task.kind;
  result.data_file = scored_file(task, options.data_folder).string();
  result.data_hash = sha256_of_file(result.data_file);
  result.task_hash = config_hash(task);
  result.num_rows = std::ssize(prepared.items);
  result.num_shots = num_shots;
  result.counts = encoder.counts();
  result.primary = task.primary;
  return prepared;
}

std::vector<ItemScore> collect(const PreparedTask& task, const std::vector<RequestScore>& scores) {
  std::vector<ItemScore> items(task.items.size());
  for (size_t i = 0; i < items.size(); ++i) items[i].resize(task.items[i].pairs.size());
  for (size_t i = 0; i < scores.size(); ++i) {
    const auto [item, choice] = task.owner_of_request[i];
    ChoiceScore& score = items[item][choice];
    score.sum += scores[i].sum;
    score.is_greedy = score.is_greedy && scores[i].is_greedy;
    score.num_tokens += std::ssize(task.requests[i].continuation);
  }
  return items;
}

void add_metrics(const PreparedTask& task, const std::vector<std::vector<ItemScore>>& scores,
                 TaskResult& result) {
  for (const Metric metric : task.config->metrics) {
    MetricResult entry;
    entry.metric = metric;
    std::vector<MetricSeries> series;
    for (const std::vector<ItemScore>& at_budget : scores) {
      series.push_back(metric_series(metric, task.config->kind, task.items, at_budget));
      entry.budgets.push_back(estimate(series.back()));
    }
    for (size_t i = 1; i < series.size(); ++i) {
      entry.differences.push_back(paired_difference(series[i - 1], series[i]));
    }
    result.metrics.push_back(std::move(entry));
  }
}

nlohmann::ordered_json token_ids_of(const PreparedTask& task, size_t item, size_t& next_request) {
  nlohmann::ordered_json ids = nlohmann::ordered_json::array();
  for (; next_request < task.requests.size() && task.owner_of_request[next_request].first == item;
       ++next_request) {
    ids.push_back({{"context", task.requests[next_request].context},
                   {"continuation", task.requests[next_request].continuation}});
  }
  return ids;
}

void log_samples(const PreparedTask& task, const std::vector<std::vector<ItemScore>>& scores,
                 const std::vector<std::string>& budget_names, bool with_token_ids, SampleLog& log) {
  size_t next_request = 0;
  for (size_t i = 0; i < task.items.size(); ++i) {
    std::vector<ItemScore> score_of_budget;
    for (const std::vector<ItemScore>& at_budget : scores) score_of_budget.push_back(at_budget[i]);
    const nlohmann::ordered_json ids = token_ids_of(task, i, next_request);
    log.add(*task.config, task.items[i], budget_names, score_of_budget,
            with_token_ids ? ids : nlohmann::ordered_json());
  }
  log.finish_task(*task.config);
}

GroupResult group_result(const TaskGroupConfig& group, const EvaluationResults& results) {
  GroupResult result{group.name, group.title.empty() ? group.name : group.title, group.tasks, {}};
  std::vector<const MetricResult*> members;
  for (const std::string& name : group.tasks) {
    const auto task = std::ranges::find(results.tasks, name, &TaskResult::name);
    SMOE_ASSERT(task != results.tasks.end());
    members.push_back(&task->primary_result());
  }
  const auto mean_over = [&](std::vector<Estimate> MetricResult::*list, size_t i) {
    std::vector<Estimate> estimates;
    for (const MetricResult* member : members) estimates.push_back((member->*list)[i]);
    return mean_estimate(estimates);
  };
  for (size_t i = 0; i < results.budget_names.size(); ++i) {
    result.mean.budgets.push_back(mean_over(&MetricResult::budgets, i));
    if (i > 0) result.mean.differences.push_back(mean_over(&MetricResult::differences, i - 1));
  }
  return result;
}

bool has_budgets(const ModelConfig& config) { return config.architecture != Architecture::kDense; }

std::vector<int64_t> all_budgets(const ModelConfig& config) {
  std::vector<int64_t> budgets(has_budgets(config) ? config.budgets.size() : 1);
  std::iota(budgets.begin(), budgets.end(), 0);
  return budgets;
}

EvaluationContext describe_run(const Model& model, const Tokenizer& tokenizer,
                               const EvaluationOptions& options, const PackingOptions& packing) {
  EvaluationContext context;
  const bool routes_segments = model.config().architecture == Architecture::kSteppedMoe;
  const std::optional<int32_t> added = PairEncoder(tokenizer, options.bos, options.max_length).added_token();
  std::ostringstream device;
  device << model.device();
  context.tokenizer_hash = tokenizer.hash();
  context.code_version = version();
  context.harness_commit = kHarnessCommit;
  context.dtype = at::toString(model.output_weight().scalar_type());
  context.device = device.str();
  context.bos_policy = bos_policy_name(options.bos);
  context.added_token = added ? tokenizer.token(*added) : "";
  context.routing = routes_segments ? routing_mode_name(packing.routing) : "none";
  context.segment_length = routes_segments ? packing.segment_length : 0;
  context.max_length = options.max_length;
  context.batch_tokens = packing.batch_tokens;
  context.num_threads = at::get_num_threads();
  context.limit = options.limit;
  context.seed = options.seed;
  return context;
}

void check_fit(const Model& model, const Tokenizer& tokenizer, const PackingOptions& packing) {
  SMOE_CHECK(
      CheckpointError, tokenizer.vocab_size() <= model.config().vocab_size,
      "the tokenizer {} has {} tokens, the model only {}; use the tokenizer the model was trained with",
      tokenizer.path().string(), tokenizer.vocab_size(), model.config().vocab_size);
  SMOE_CHECK(ConfigError, packing.segment_length >= 1, "the segment length is {}; it must be at least 1",
             packing.segment_length);
  SMOE_CHECK(ConfigError, packing.batch_tokens >= 1, "the tokens of a batch are {}; there must be at least 1",
             packing.batch_tokens);
}

}  // namespace

EvaluationResults evaluate(const Model& model, const Tokenizer& tokenizer, const EvaluationOptions& options) {
  const PackingOptions packing = {options.batch_tokens,
                                  options.segment_length.value_or(model.config().routing.segment_length),
                                  options.routing};
  check_fit(model, tokenizer, packing);
  EvaluationResults results;
  results.context = describe_run(model, tokenizer, options, packing);
  const std::vector<int64_t> budgets =
      options.budgets.empty() ? all_budgets(model.config()) : options.budgets;
  for (const int64_t budget : budgets) {
    if (!has_budgets(model.config())) {
      results.budget_names.emplace_back("dense");
      continue;
    }
    const BudgetConfig& config = model.config().budgets.at(static_cast<size_t>(budget));
    results.budget_names.push_back(config.name);
    results.experts_per_layer.push_back(config.experts_per_layer);
  }
  std::vector<PreparedTask> tasks;
  for (const TaskConfig& task : options.tasks) tasks.push_back(prepare(task, tokenizer, options));
  SampleLog log(options.samples);
  const Scorer scorer(model, packing);
  for (PreparedTask& task : tasks) {
    const auto start = std::chrono::steady_clock::now();
    ProgressBar progress(task.result.title, std::ssize(task.requests) * std::ssize(budgets), "requests");
    std::vector<std::vector<ItemScore>> scores;
    for (const int64_t budget : budgets) {
      scores.push_back(
          collect(task, scorer.score(task.requests, budget, [&](int64_t n) { progress.advance(n); })));
    }
    add_metrics(task, scores, task.result);
    task.result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    log_samples(task, scores, results.budget_names, options.log_token_ids, log);
    results.tasks.push_back(std::move(task.result));
  }
  for (const TaskGroupConfig& group : options.groups) results.groups.push_back(group_result(group, results));
  return results;
}

std::vector<int64_t> parse_budgets(const ModelConfig& config, const std::string& text) {
  if (text == "all") return all_budgets(config);
  SMOE_CHECK(ConfigError, has_budgets(config), "a dense model has one size; use --budgets all, not `{}`",
             text);
  std::vector<int64_t> budgets;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    budgets.push_back(find_budget(config.budgets, text.substr(begin, end - begin)));
    begin = end + 1;
  }
  // Ascending, so that neighbours in the table are neighbours in size, and differences mean "more experts".
  std::ranges::sort(budgets);
  const auto repeated = std::ranges::unique(budgets);
  budgets.erase(repeated.begin(), repeated.end());
  return budgets;
}

}  // namespace smoe
