#include "smoe/eval/evaluator.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <sstream>

#include "eval/judged_answers.h"
#include "eval/prepared_task.h"
#include "eval/sample_log.h"
#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/core/log.h"
#include "smoe/core/progress.h"
#include "smoe/core/tool.h"

namespace smoe {
namespace {

bool is_share(const TaskConfig& task, size_t metric) {
  if (is_generation(task.kind)) return task.kind != TaskKind::kJudged;
  switch (task.metrics[metric]) {
    case Metric::kAccuracy:
    case Metric::kAccuracyCharacters:
    case Metric::kAccuracyBytes:
    case Metric::kAccuracyCentered:
      return true;
    default:
      return false;
  }
}

// `series` has one entry a budget.
MetricResult metric_result(const TaskConfig& task, size_t metric, const std::vector<MetricSeries>& series) {
  MetricResult result;
  result.name = metric_names(task)[metric];
  result.is_share = is_share(task, metric);
  result.exponential = series.front().exponential;
  for (size_t i = 0; i < series.size(); ++i) {
    result.budgets.push_back(estimate(series[i]));
    if (i > 0) result.differences.push_back(paired_difference(series[i - 1], series[i]));
  }
  return result;
}

void add_metrics(const TaskConfig& task, const std::vector<BudgetScores>& scores, TaskResult& result) {
  for (size_t metric = 0; metric < metric_names(task).size(); ++metric) {
    std::vector<MetricSeries> series;
    for (const BudgetScores& at_budget : scores) series.push_back(at_budget.series[metric]);
    result.metrics.push_back(metric_result(task, metric, series));
  }
}

// The primary metric over the rows of each subgroup; parts without rows, as under a limit, are left out.
void add_subgroups(const PreparedTask& task, const std::vector<BudgetScores>& scores, TaskResult& result) {
  const std::vector<std::string> names = metric_names(*task.config);
  const auto primary = static_cast<size_t>(std::ranges::find(names, task.config->primary) - names.begin());
  for (const SubgroupConfig& group : task.config->subgroups) {
    std::vector<MetricSeries> series;
    for (const BudgetScores& at_budget : scores) {
      const MetricSeries& all = at_budget.series[primary];
      MetricSeries& part = series.emplace_back();
      part.exponential = all.exponential;
      for (size_t i = 0; i < task.items.size(); ++i) {
        if (std::ranges::find(group.values, task.items[i].subgroup) == group.values.end()) continue;
        part.values.push_back(all.values[i]);
        part.weights.push_back(all.weights[i]);
      }
    }
    if (series.front().values.empty()) continue;
    const int64_t num_rows = std::ssize(series.front().values);
    result.subgroups.push_back({group.name, num_rows, metric_result(*task.config, primary, series)});
  }
}

nlohmann::ordered_json token_ids_of(const PreparedTask& task, size_t item, size_t& next_request) {
  if (task.generates()) return {{"prompt", task.prompts.ids[item]}};
  nlohmann::ordered_json ids = nlohmann::ordered_json::array();
  for (; next_request < task.requests.size() && task.owner_of_request[next_request].first == item;
       ++next_request) {
    ids.push_back({{"context", task.requests[next_request].context},
                   {"continuation", task.requests[next_request].continuation}});
  }
  return ids;
}

void log_samples(const PreparedTask& task, const std::vector<BudgetScores>& scores,
                 const std::vector<std::string>& budget_names, bool with_token_ids, SampleLog& log) {
  size_t next_request = 0;
  for (size_t i = 0; i < task.items.size(); ++i) {
    std::vector<nlohmann::ordered_json> of_budget;
    for (const BudgetScores& at_budget : scores) of_budget.push_back(at_budget.samples[i]);
    const nlohmann::ordered_json ids = token_ids_of(task, i, next_request);
    log.add(*task.config, task.items[i], budget_names, of_budget,
            with_token_ids ? ids : nlohmann::ordered_json());
  }
  log.finish_task(*task.config);
}

// Nothing if a member failed: a mean of the others would be another number under the same name.
std::optional<GroupResult> group_result(const TaskGroupConfig& group, const EvaluationResults& results) {
  GroupResult result{group.name, group.title.empty() ? group.name : group.title, group.tasks, {}};
  std::vector<const MetricResult*> members;
  for (const std::string& name : group.tasks) {
    const auto task = std::ranges::find(results.tasks, name, &TaskResult::name);
    if (task == results.tasks.end()) return std::nullopt;
    members.push_back(&task->primary_result());
  }
  result.mean.name = "mean";
  result.mean.is_share = std::ranges::all_of(members, [](const auto* member) { return member->is_share; });
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

int64_t prefix_unit(const ModelConfig& config, const EvaluationOptions& options,
                    const PackingOptions& packing) {
  return options.share_prefixes ? shareable_prefix_unit(config, packing.routing, packing.segment_length) : 0;
}

EvaluationContext describe_run(const Model& model, const Tokenizer& tokenizer,
                               const EvaluationOptions& options, const PackingOptions& packing) {
  EvaluationContext context;
  context.checkpoint = options.checkpoint;
  context.checkpoint_hash = options.checkpoint_hash;
  if (options.chat_template) {
    context.chat_template = options.chat_template->name;
    context.chat_layout = enum_to_name(options.chat_layout);
    context.system_prompt = options.system_prompt;
  }
  const bool routes_segments = model.config().architecture == Architecture::kSteppedMoe;
  const std::optional<int32_t> added = PairEncoder(tokenizer, options.bos, options.max_length).added_token();
  std::ostringstream device;
  device << model.device();
  context.tokenizer_hash = tokenizer.hash();
  context.code_version = version();
  context.harness_version = kHarnessVersion;
  context.dtype = at::toString(model.output_weight().scalar_type());
  context.device = device.str();
  context.bos_policy = bos_policy_name(options.bos);
  context.added_token = added ? tokenizer.token(*added) : "";
  context.routing = routes_segments ? routing_mode_name(packing.routing) : "none";
  context.segment_length = routes_segments ? packing.segment_length : 0;
  context.max_length = options.max_length;
  context.batch_tokens = packing.batch_tokens;
  context.shared_prefixes = !options.share_prefixes                         ? "off"
                            : prefix_unit(model.config(), options, packing) ? "on"
                                                                            : "impossible";
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

std::vector<int64_t> name_budgets(const ModelConfig& config, const EvaluationOptions& options,
                                  EvaluationResults& results) {
  const std::vector<int64_t> budgets = options.budgets.empty() ? all_budgets(config) : options.budgets;
  for (const int64_t index : budgets) {
    if (!has_budgets(config)) {
      results.budget_names.emplace_back("dense");
      continue;
    }
    const BudgetConfig& budget = config.budgets.at(static_cast<size_t>(index));
    results.budget_names.push_back(budget.name);
    results.experts_per_layer.push_back(budget.experts_per_layer);
  }
  return budgets;
}

// One task must not stop the others: its error becomes a line of the results.
template <class Work>
void attempt(const std::string& task, EvaluationResults& results, const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    SPDLOG_ERROR("{} is not scored: {}", task, error.what());
    results.failures.push_back({task, error.what()});
  }
}

// Of all that goes through the model: also the shots, which come from files of their own.
std::string hash_of_ids(const PreparedTask& task) {
  std::string bytes;
  const auto add = [&](const std::vector<int32_t>& ids) {
    const auto size = static_cast<uint64_t>(ids.size());
    bytes.append(reinterpret_cast<const char*>(&size), sizeof size);
    bytes.append(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int32_t));
  };
  for (const Request& request : task.requests) {
    add(request.context);
    add(request.continuation);
  }
  for (const std::vector<int32_t>& prompt : task.prompts.ids) add(prompt);
  return sha256_of_bytes(bytes);
}

// Two runs that agree in this compute the same numbers, up to rounding.
std::string run_fingerprint(const PreparedTask& task, const EvaluationOptions& options,
                            const EvaluationContext& context) {
  std::string text = fmt::format("{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}", context.checkpoint_hash,
                                 context.tokenizer_hash, context.code_version, context.dtype, context.device,
                                 context.bos_policy, context.routing, context.segment_length,
                                 context.max_length, context.limit, context.seed, task.result.task_hash,
                                 task.result.data_hash, task.result.num_shots);
  text += fmt::format("|{}|{}", options.max_new_tokens.value_or(0), hash_of_ids(task));
  if (options.chat_template) {
    text += config_hash(*options.chat_template);
    text += fmt::format("|{}|{}", enum_to_name(options.chat_layout), options.system_prompt);
  }
  return sha256_of_bytes(text);
}

void run_task(PreparedTask& task, const TaskTools& tools, const std::vector<int64_t>& budgets, SampleLog& log,
              EvaluationResults& results) {
  const auto start = std::chrono::steady_clock::now();
  ProgressBar progress(task.result.title, num_work_items(task) * std::ssize(budgets),
                       task.generates() ? "answers" : "requests");
  TaskJournal journal(tools.options.journal, task.config->name,
                      run_fingerprint(task, tools.options, results.context));
  if (journal.num_known() > 0) {
    SPDLOG_INFO("{}: continues after {} finished pieces of an earlier run", task.config->name,
                journal.num_known());
  }
  std::vector<BudgetScores> scores;
  for (const int64_t budget : budgets) scores.push_back(score_task(task, tools, budget, journal, progress));
  add_metrics(*task.config, scores, task.result);
  add_subgroups(task, scores, task.result);
  if (task.config->kind == TaskKind::kJudged) {
    task.result.answer_files = write_judged_answers(task, scores, results.budget_names, tools.options);
    results.notes.push_back(judge_command(*task.config, task.result.answer_files, tools.options));
  }
  task.result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  log_samples(task, scores, results.budget_names, tools.options.log_token_ids, log);
  task.result.sample_log = log.file_of(task.config->name);
  results.tasks.push_back(std::move(task.result));
}

void add_group(const TaskGroupConfig& group, EvaluationResults& results) {
  if (!group.note.empty()) results.notes.push_back(group.note);
  if (group.kind == TaskGroupKind::kList) return;
  if (std::optional<GroupResult> result = group_result(group, results)) {
    results.groups.push_back(std::move(*result));
  } else {
    results.failures.push_back({group.name, "no mean, because a task of the group is not scored"});
  }
}

}  // namespace

EvaluationResults evaluate(const Model& model, const Tokenizer& tokenizer, const EvaluationOptions& options) {
  const PackingOptions packing = {options.batch_tokens,
                                  options.segment_length.value_or(model.config().routing.segment_length),
                                  options.routing};
  check_fit(model, tokenizer, packing);
  EvaluationResults results;
  results.failures = options.failures;
  results.context = describe_run(model, tokenizer, options, packing);
  const std::vector<int64_t> budgets = name_budgets(model.config(), options, results);
  std::optional<ChatRenderer> chat;
  if (options.chat_template) chat.emplace(*options.chat_template, tokenizer);
  Scorer scorer(model, packing);
  const AnswerGenerator generator(
      model, tokenizer,
      {packing.segment_length, packing.routing, options.bos, options.max_length, options.batch_tokens,
       options.max_new_tokens, options.seed, chat ? &*chat : nullptr, options.share_prefixes});
  const ChatRenderer* chat_renderer = chat ? &*chat : nullptr;
  const int64_t unit = prefix_unit(model.config(), options, packing);
  std::unique_ptr<CodeRunner> runner;
  std::vector<PreparedTask> tasks;
  for (const TaskConfig& task : options.tasks) {
    attempt(task.name, results, [&] {
      if (task.kind == TaskKind::kCode && !runner) {
        runner = std::make_unique<CodeRunner>(options.code);
        results.context.sandbox = runner->sandbox().description();
      }
      tasks.push_back(
          prepare_task(task, {tokenizer, options, scorer, generator, runner.get(), unit, chat_renderer}));
    });
  }
  SampleLog log(options.samples);
  const TaskTools tools = {tokenizer, options, scorer, generator, runner.get(), unit, chat_renderer};
  for (PreparedTask& task : tasks) {
    attempt(task.config->name, results, [&] { run_task(task, tools, budgets, log, results); });
  }
  for (const TaskGroupConfig& group : options.groups) add_group(group, results);
  return results;
}

std::vector<int64_t> parse_budgets(const ModelConfig& config, const std::string& text) {
  if (text == "all") return all_budgets(config);
  SMOE_CHECK(ConfigError, has_budgets(config),
             "budgets `{}`: a dense model has one size; leave out --budgets of smoe-eval, or "
             "`evaluation.budgets` of a training run",
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
