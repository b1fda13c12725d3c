#include "eval/prepared_task.h"

#include <algorithm>

#include "eval/sample_log.h"
#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/eval/shared_prefixes.h"
#include "smoe/eval/text_filters.h"

namespace smoe {
namespace {

// Rows that are scored and then stored together: what a killed run loses at most.
constexpr size_t kRowsPerPiece = 512;

// Contexts once each: requests that share a whole context share a row already.
void share_prefixes(PreparedTask& prepared, int64_t unit) {
  std::vector<Request>& requests = prepared.requests;
  std::vector<std::span<const int32_t>> contexts;
  std::vector<size_t> context_of_request;
  for (size_t i = 0; i < requests.size(); ++i) {
    const bool is_new = i == 0 || requests[i].group != requests[i - 1].group ||
                        requests[i].context != requests[i - 1].context;
    if (is_new) contexts.emplace_back(requests[i].context);
    context_of_request.push_back(contexts.size() - 1);
  }
  const PrefixPlan plan = plan_shared_prefixes(contexts, unit);
  for (size_t i = 0; i < requests.size(); ++i)
    requests[i].shared_prefix = plan.lengths[context_of_request[i]];
  prepared.result.shared_prefixes = plan.counts;
}

// The answer `pair.continuation` in the dialogue of an item.
Request encode_in_dialogue(const EvaluationItem& item, const TextPair& pair, const ChatRenderer& chat,
                           PairEncoder& encoder) {
  const bool trims = chat.chat_template().trim_content;
  const std::string_view answer = trims ? strip(pair.continuation) : std::string_view(pair.continuation);
  return encoder.encode_answer(dialogue_prompt(chat, item.dialogue, pair.context), answer, item.where);
}

void encode_requests(PreparedTask& prepared, const TaskTools& tools) {
  const bool is_text = prepared.config->kind == TaskKind::kRollingText;
  PairEncoder encoder(tools.tokenizer, tools.options.bos, tools.options.max_length);
  for (size_t i = 0; i < prepared.items.size(); ++i) {
    const EvaluationItem& item = prepared.items[i];
    for (size_t choice = 0; choice < item.pairs.size(); ++choice) {
      const TextPair& pair = item.pairs[choice];
      std::vector<Request> requests;
      if (is_text) {
        requests = encoder.encode_rolling(pair.continuation);
      } else if (tools.chat != nullptr) {
        requests = {encode_in_dialogue(item, pair, *tools.chat, encoder)};
      } else {
        requests = {encoder.encode(pair, item.where)};
      }
      for (Request& request : requests) {
        request.group = static_cast<int64_t>(i);
        prepared.requests.push_back(std::move(request));
        prepared.owner_of_request.emplace_back(i, choice);
      }
    }
  }
  SMOE_CHECK(DataError, !prepared.requests.empty(), "task {}: {} holds no text to score",
             prepared.config->name, scored_file(*prepared.config, tools.options.data_folder).string());
  prepared.result.counts = encoder.counts();
  share_prefixes(prepared, tools.prefix_unit);
}

void prepare_answers(PreparedTask& prepared, const TaskTools& tools) {
  const TaskConfig& task = *prepared.config;
  prepared.responses = std::make_unique<ResponseScorer>(task, tools.runner);
  prepared.responses->check(prepared.items);
  prepared.prompts = tools.generator.encode(task, prepared.items);
  prepared.result.counts = {std::ssize(prepared.items) * task.generation.samples, prepared.prompts.truncated,
                            0};
  prepared.result.shared_prefixes = prepared.prompts.prefix_counts;
  prepared.result.generation = GenerationCounts{.max_new_tokens = tools.generator.max_new_tokens(task),
                                                .samples = task.generation.samples,
                                                .temperature = task.generation.temperature,
                                                .top_p = task.generation.top_p,
                                                .seed = tools.options.seed};
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

// Requests [begin, end), from the journal or the model.
std::vector<RequestScore> piece_scores(const PreparedTask& task, size_t begin, size_t end,
                                       const TaskTools& tools, int64_t budget, TaskJournal& journal,
                                       ProgressBar& progress) {
  const std::string key = fmt::format("sums {} {}", budget, begin);
  std::vector<RequestScore> scores;
  if (const nlohmann::json* known = journal.find(key)) {
    for (const auto& score : *known) scores.push_back({score[0], score[1]});
    progress.advance(static_cast<int64_t>(end - begin));
    return scores;
  }
  const auto first = task.requests.begin();
  scores = tools.scorer.score({first + static_cast<int64_t>(begin), first + static_cast<int64_t>(end)},
                              budget, [&](int64_t n) { progress.advance(n); });
  nlohmann::json stored = nlohmann::json::array();
  for (const RequestScore& score : scores) stored.push_back({score.sum, score.is_greedy});
  journal.add(key, stored);
  return scores;
}

BudgetScores score_continuations(const PreparedTask& task, const TaskTools& tools, int64_t budget,
                                 TaskJournal& journal, ProgressBar& progress) {
  std::vector<RequestScore> scores;
  for (size_t begin = 0; begin < task.requests.size();) {
    const size_t last_item = task.owner_of_request[begin].first + kRowsPerPiece;
    size_t end = begin;
    while (end < task.requests.size() && task.owner_of_request[end].first < last_item) ++end;
    std::ranges::copy(piece_scores(task, begin, end, tools, budget, journal, progress),
                      std::back_inserter(scores));
    begin = end;
  }
  const std::vector<ItemScore> items = collect(task, scores);
  BudgetScores result;
  for (const Metric metric : task.config->metrics) {
    result.series.push_back(metric_series(metric, task.config->kind, task.items, items));
  }
  for (size_t i = 0; i < items.size(); ++i) {
    result.samples.push_back(likelihood_sample(*task.config, task.items[i], items[i]));
  }
  return result;
}

FinishReason finish_from_json(const nlohmann::json& name) {
  for (const FinishReason reason : {FinishReason::kStop, FinishReason::kEos, FinishReason::kLength}) {
    if (finish_reason_name(reason) == name) return reason;
  }
  return FinishReason::kCancelled;
}

std::vector<RowAnswers> generate_answers(const PreparedTask& task, const TaskTools& tools, int64_t budget,
                                         TaskJournal& journal, ProgressBar& progress) {
  const int64_t num_samples = task.config->generation.samples;
  std::vector<RowAnswers> answers(task.items.size(), RowAnswers(static_cast<size_t>(num_samples)));
  std::vector<AnswerGenerator::Wanted> wanted;
  const auto key = [&](size_t item, int64_t sample) {
    return fmt::format("answer {} {} {}", budget, item, sample);
  };
  for (size_t item = 0; item < task.items.size(); ++item) {
    for (int64_t sample = 0; sample < num_samples; ++sample) {
      const nlohmann::json* known = journal.find(key(item, sample));
      if (known == nullptr) {
        wanted.push_back({item, sample});
        continue;
      }
      answers[item][static_cast<size_t>(sample)] = {(*known)[0], finish_from_json((*known)[1]), (*known)[2]};
      progress.advance();
    }
  }
  tools.generator.generate(*task.config, task.items, task.prompts, std::move(wanted), budget,
                           [&](const AnswerGenerator::Wanted& one, GeneratedAnswer answer) {
                             journal.add(key(one.item, one.sample),
                                         {answer.text, finish_reason_name(answer.finish), answer.num_tokens});
                             answers[one.item][static_cast<size_t>(one.sample)] = std::move(answer);
                             progress.advance();
                           });
  return answers;
}

// The numbers that metrics are made of, so that two logs can be compared without knowing the task.
void add_metric_values(const TaskConfig& task, BudgetScores& scores) {
  const std::vector<std::string> names = metric_names(task);
  for (size_t i = 0; i < scores.samples.size(); ++i) {
    for (size_t j = 0; j < names.size(); ++j) {
      scores.samples[i]["metrics"][names[j]] = {scores.series[j].values[i], scores.series[j].weights[i]};
    }
  }
}

// Known before anything is generated.
void check_answer_folder(const TaskConfig& task, const EvaluationOptions& options) {
  if (task.kind != TaskKind::kJudged) return;
  SMOE_CHECK(ConfigError, !options.answers.empty(),
             "task {}: its answers are judged elsewhere; name a folder for them", task.name);
  prepare_output_file(options.answers / task.name / "answers.json");
}

}  // namespace

PreparedTask prepare_task(const TaskConfig& task, const TaskTools& tools) {
  const EvaluationOptions& options = tools.options;
  PreparedTask prepared;
  prepared.config = &task;
  const int64_t num_shots = shots_of(task, options.num_shots);
  const bool is_dialogue = tools.chat != nullptr && task.kind != TaskKind::kRollingText;
  SMOE_CHECK(ConfigError, !options.chat_template || options.chat_layout != PromptLayout::kText,
             "with a chat template, shots are one message or turns, not text");
  prepared.items =
      build_items(task, {options.data_folder, options.limit, num_shots, options.seed,
                         is_dialogue ? options.chat_layout : PromptLayout::kText, options.system_prompt});
  if (is_generation(task.kind)) {
    prepare_answers(prepared, tools);
  } else {
    encode_requests(prepared, tools);
  }
  TaskResult& result = prepared.result;
  result.name = task.name;
  result.title = task.title.empty() ? task.name : task.title;
  result.kind = task.kind;
  result.data_file = scored_file(task, options.data_folder).string();
  result.data_hash = sha256_of_file(result.data_file);
  result.task_hash = config_hash(task);
  result.num_rows = std::ssize(prepared.items);
  result.num_shots = num_shots;
  result.primary = task.primary;
  check_answer_folder(task, options);
  return prepared;
}

int64_t num_work_items(const PreparedTask& task) {
  return task.generates() ? std::ssize(task.items) * task.config->generation.samples
                          : std::ssize(task.requests);
}

BudgetScores score_task(PreparedTask& task, const TaskTools& tools, int64_t budget, TaskJournal& journal,
                        ProgressBar& progress) {
  BudgetScores scores;
  if (!task.generates()) {
    scores = score_continuations(task, tools, budget, journal, progress);
  } else {
    const std::vector<RowAnswers> answers = generate_answers(task, tools, budget, journal, progress);
    scores = task.responses->score(task.items, answers);
    GenerationCounts& counts = *task.result.generation;
    for (const RowAnswers& row : answers) {
      for (const GeneratedAnswer& answer : row) {
        ++counts.answers;
        counts.new_tokens += answer.num_tokens;
        counts.ended_by_length += answer.finish == FinishReason::kLength;
      }
    }
    counts.programs += scores.programs;
    counts.timed_out_programs += scores.timed_out_programs;
  }
  add_metric_values(*task.config, scores);
  return scores;
}

}  // namespace smoe
