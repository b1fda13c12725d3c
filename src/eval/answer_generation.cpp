#include "smoe/eval/answer_generation.h"

#include <algorithm>
#include <unordered_map>

#include "smoe/core/error.h"
#include "smoe/eval/pair_encoding.h"
#include "smoe/infer/chat_dialogue.h"
#include "smoe/infer/generator.h"
#include "smoe/infer/prompts.h"

namespace smoe {
namespace {

// A row of the batch costs about this many tokens of keys and values.
constexpr int64_t kTypicalRowTokens = 256;

}  // namespace

DialoguePrompt dialogue_prompt(const ChatRenderer& chat, const Conversation& before,
                               const std::string& message) {
  Conversation messages = before;
  messages.push_back({ChatRole::kUser, message});
  ChatExample dialogue = chat.open_dialogue(messages);
  return {std::move(dialogue.tokens), std::move(dialogue.responses)};
}

int64_t AnswerGenerator::max_new_tokens(const TaskConfig& task) const {
  const int64_t wanted = task.generation.max_new_tokens;
  const int64_t tokens = std::min(wanted, options_.max_new_tokens.value_or(wanted));
  SMOE_CHECK(ConfigError, tokens < options_.max_length,
             "task {}: answers may have {} tokens, but prompt and answer together only {}; lower "
             "--max-new-tokens or raise --max-length of smoe-eval, or lower `evaluation.max_new_tokens` of a "
             "training run",
             task.name, tokens, options_.max_length);
  return tokens;
}

DialoguePrompt AnswerGenerator::prompt_of(const EvaluationItem& item) const {
  const std::string& text = item.pairs.front().context;
  if (options_.chat == nullptr) return {encode_prompt(tokenizer_, text, options_.bos)};
  return dialogue_prompt(*options_.chat, item.dialogue, text);
}

AnswerPrompts AnswerGenerator::encode(const TaskConfig& task,
                                      const std::vector<EvaluationItem>& items) const {
  const int64_t room = options_.max_length - max_new_tokens(task);
  AnswerPrompts prompts;
  for (const EvaluationItem& item : items) {
    DialoguePrompt prompt = prompt_of(item);
    SMOE_CHECK(
        DataError, !prompt.ids.empty(),
        "{}: the prompt is empty, and nothing is put before it; choose a token with --bos of smoe-eval, "
        "`evaluation.bos` of a training run",
        item.where);
    if (std::ssize(prompt.ids) > room) {
      drop_left(std::ssize(prompt.ids) - room, prompt.ids, prompt.responses);
      ++prompts.truncated;
    }
    prompts.ids.push_back(std::move(prompt.ids));
    prompts.responses.push_back(std::move(prompt.responses));
  }
  share_prefixes(prompts, task.generation.samples);
  return prompts;
}

void AnswerGenerator::share_prefixes(AnswerPrompts& prompts, int64_t num_samples) const {
  const int64_t unit = options_.share_prefixes
                           ? shareable_prefix_unit(model_.config(), options_.routing, options_.segment_length)
                           : 0;
  std::vector<std::span<const int32_t>> of_samples;
  for (const std::vector<int32_t>& ids : prompts.ids) {
    of_samples.insert(of_samples.end(), static_cast<size_t>(num_samples), ids);
  }
  const PrefixPlan plan = plan_shared_prefixes(of_samples, unit);
  for (size_t row = 0; row < prompts.ids.size(); ++row) {
    prompts.shared_prefixes.push_back(plan.lengths[row * static_cast<size_t>(num_samples)]);
  }
  prompts.prefix_counts = plan.counts;
}

GenerationRequest AnswerGenerator::request(const TaskConfig& task, const EvaluationItem& item,
                                           const AnswerPrompts& prompts, const Wanted& wanted,
                                           int64_t budget) const {
  GenerationRequest request;
  request.prompt = prompts.ids[wanted.item];
  request.responses = prompts.responses[wanted.item];
  request.shared_prefix = prompts.shared_prefixes[wanted.item];
  request.budget = budget;
  request.stops = item.stops;
  request.stop_ids = default_stop_ids(tokenizer_);
  request.continues_text = task.generation.continues_text;
  if (options_.chat != nullptr) answer_like_training(*options_.chat, request);
  request.segment_length = options_.segment_length;
  request.routing = options_.routing;
  request.max_new_tokens = max_new_tokens(task);
  request.sampling.temperature = task.generation.temperature;
  request.sampling.top_p = task.generation.top_p;
  // Neighbouring seeds are independent streams: SplitMix64 mixes them.
  request.sampling.seed = options_.seed + wanted.item * static_cast<uint64_t>(task.generation.samples) +
                          static_cast<uint64_t>(wanted.sample);
  return request;
}

void AnswerGenerator::generate(const TaskConfig& task, const std::vector<EvaluationItem>& items,
                               const AnswerPrompts& prompts, std::vector<Wanted> wanted, int64_t budget,
                               const std::function<void(const Wanted&, GeneratedAnswer)>& on_answer) const {
  // Prompts that share a prefix run together, so that it is stored once.
  const auto prefix = [&](const Wanted& one) {
    return std::span(prompts.ids[one.item]).first(static_cast<size_t>(prompts.shared_prefixes[one.item]));
  };
  std::ranges::stable_sort(wanted, [&](const Wanted& a, const Wanted& b) {
    const auto order = std::lexicographical_compare_three_way(prefix(a).begin(), prefix(a).end(),
                                                              prefix(b).begin(), prefix(b).end());
    return order != 0 ? order < 0 : prompts.ids[a.item].size() > prompts.ids[b.item].size();
  });
  SessionLimits limits;
  limits.max_rows = std::max<int64_t>(1, options_.batch_tokens / kTypicalRowTokens);
  limits.prefill_tokens = options_.batch_tokens;
  GenerationSession session(model_, tokenizer_, limits);
  std::unordered_map<int64_t, Wanted> wanted_of_request;
  for (const Wanted& one : wanted) {
    const int64_t number = session.add(request(task, items[one.item], prompts, one, budget));
    wanted_of_request[number] = one;
  }
  bool is_running = !wanted.empty();
  while (is_running) {
    is_running = session.step();
    for (GenerationResult& result : session.take_finished()) {
      // A score over the answers that happened to work would be wrong.
      SMOE_CHECK(DataError, result.finish != FinishReason::kFailed, "{}", result.error);
      on_answer(wanted_of_request.at(result.request),
                {std::move(result.text), result.finish, std::ssize(result.ids)});
    }
  }
}

}  // namespace smoe
