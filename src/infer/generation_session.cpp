// Shape legend: B rows, V vocabulary.
#include "smoe/infer/generation_session.h"

#include <algorithm>
#include <span>
#include <utility>

#include "request_checks.h"
#include "smoe/core/error.h"
#include "smoe/infer/text_stream.h"

namespace smoe {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::span<const float> row_of(const at::Tensor& logits_BV, size_t row) {
  const auto width = static_cast<size_t>(logits_BV.size(1));
  return {logits_BV.const_data_ptr<float>() + row * width, width};
}

std::span<const int32_t> prefix_of(const GenerationRequest& request) {
  return std::span(request.prompt).first(static_cast<size_t>(request.shared_prefix));
}

bool has_same_prefix(const GenerationRequest& a, const GenerationRequest& b) {
  return a.shared_prefix == b.shared_prefix &&
         (a.shared_prefix == 0 || (a.budget == b.budget && a.segment_length == b.segment_length &&
                                   std::ranges::equal(prefix_of(a), prefix_of(b))));
}

}  // namespace

struct GenerationSession::Running {
  Running(GenerationRequest asked, int64_t number, const Tokenizer& tokenizer)
      : request(std::move(asked)),
        sampler(request.sampling),
        text(tokenizer, request.stops, request.continues_text ? request.prompt : std::vector<int32_t>{},
             request.ending),
        added(Clock::now()) {
    result.request = number;
    result.stats.prompt_tokens = std::ssize(request.prompt);
  }

  int64_t num_tokens() const { return std::ssize(request.prompt) + std::ssize(result.ids); }
  bool is_full() const {
    return std::ssize(result.ids) >= request.max_new_tokens ||
           (request.context_limit && num_tokens() >= *request.context_limit);
  }

  GenerationRequest request;
  Sampler sampler;
  TextStream text;
  Clock::time_point added;
  GenerationResult result;
  bool is_finished = false;
};

GenerationSession::GenerationSession(const Model& model, const Tokenizer& tokenizer,
                                     const SessionLimits& limits)
    : model_(model), tokenizer_(tokenizer), limits_(limits), batch_(model), prefixes_(model) {
  SMOE_CHECK(ConfigError, limits.max_rows >= 1 && limits.prefill_tokens >= 1 && limits.chunk_tokens >= 1,
             "session limits: max_rows {}, prefill_tokens {} and chunk_tokens {} must all be at least 1",
             limits.max_rows, limits.prefill_tokens, limits.chunk_tokens);
}

GenerationSession::~GenerationSession() = default;

int64_t GenerationSession::num_waiting() const { return std::ssize(waiting_); }
int64_t GenerationSession::num_running() const { return std::ssize(running_); }

std::vector<GenerationResult> GenerationSession::take_finished() { return std::exchange(finished_, {}); }

int64_t GenerationSession::add(GenerationRequest request) {
  check_request(request, model_.config());
  SMOE_ASSERT(request.shared_prefix >= 0 && request.shared_prefix < std::ssize(request.prompt));
  waiting_.push_back(std::make_unique<Running>(std::move(request), next_request_, tokenizer_));
  return next_request_++;
}

void GenerationSession::cancel(int64_t request) { cancelled_.insert(request); }

bool GenerationSession::step() {
  remove_cancelled();
  if (!waiting_.empty() && num_running() < limits_.max_rows) admit();
  remove_cancelled();
  if (!running_.empty()) decode();
  remove_cancelled();
  return !waiting_.empty() || !running_.empty();
}

GenerationSession::Requests GenerationSession::next_group() {
  Requests group;
  int64_t longest = 0;
  while (!waiting_.empty() && num_running() + std::ssize(group) < limits_.max_rows) {
    const GenerationRequest& next = waiting_.front()->request;
    if (!group.empty() && !has_same_prefix(next, group.front()->request)) break;
    longest = std::max(longest, std::ssize(next.prompt) - next.shared_prefix);
    if (!group.empty() && longest * (std::ssize(group) + 1) > limits_.prefill_tokens) break;
    group.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  return group;
}

// Ends the requests that need what could not be read. The others have lost nothing and may be tried again.
void GenerationSession::give_up(Requests& requests, const ExpertReadError& error) {
  if (error.rows().empty()) throw error;
  for (const int64_t row : error.rows()) {
    Running& running = *requests.at(static_cast<size_t>(row));
    running.result.error = error.what();
    deliver(running,
            {running.result.request, {}, running.text.finish(), {}, FinishReason::kFailed, error.what()});
  }
}

at::Tensor GenerationSession::prefill(Requests& group) {
  while (!group.empty()) {
    std::vector<std::vector<int32_t>> prompts;
    std::vector<DecodeRow> rows;
    for (const auto& running : group) {
      const GenerationRequest& request = running->request;
      prompts.push_back(request.prompt);
      rows.push_back({request.budget,
                      {request.routing, request.segment_length, 0, request.responses,
                       model_.config().routing.selector_position}});
    }
    try {
      std::shared_ptr<const KvCache> prefix;
      // Of all of them; an error in it names the first row, and the others meet it in their turn.
      if (const GenerationRequest& first = group.front()->request; first.shared_prefix > 0) {
        prefix = prefixes_.get(prefix_of(first), first.budget, first.segment_length);
      }
      return batch_.prefill(prompts, std::move(rows), limits_.chunk_tokens, prefix);
    } catch (const ExpertReadError& error) {
      give_up(group, error);
    }
    for (const auto& running : group) {
      if (running->is_finished) finished_.push_back(std::move(running->result));
    }
    std::erase_if(group, [](const auto& running) { return running->is_finished; });
  }
  return {};
}

void GenerationSession::admit() {
  Requests group = next_group();
  for (const auto& running : group) {
    running->result.stats.queue_s = seconds_since(running->added);
    stats_.queue_s += running->result.stats.queue_s;
    stats_.prompt_tokens += std::ssize(running->request.prompt);
  }
  const Clock::time_point start = Clock::now();
  const at::Tensor logits_BV = prefill(group);
  const double elapsed_s = seconds_since(start);
  stats_.prefill_s += elapsed_s;
  for (size_t row = 0; row < group.size(); ++row) {
    Running& running = *group[row];
    running_.push_back(std::move(group[row]));
    running.result.stats.prefill_s = elapsed_s;
    accept(running, row_of(logits_BV, row));
  }
  drop_finished_rows();
}

at::Tensor GenerationSession::decode_tokens() {
  while (!running_.empty()) {
    std::vector<int32_t> tokens;
    for (const auto& running : running_) tokens.push_back(running->result.ids.back());
    try {
      return batch_.decode(tokens);
    } catch (const ExpertReadError& error) {
      give_up(running_, error);
    }
    drop_finished_rows();
  }
  return {};
}

void GenerationSession::decode() {
  const Clock::time_point start = Clock::now();
  const at::Tensor logits_BV = decode_tokens();
  for (size_t row = 0; row < running_.size(); ++row) {
    if (const std::optional<RefreshCount>& refresh = batch_.refreshes()[row]) {
      for (GenerationStats* stats : {&running_[row]->result.stats, &stats_}) {
        ++stats->refreshes;
        stats->selected_experts += refresh->selected;
        stats->kept_experts += refresh->kept;
      }
    }
    ++running_[row]->result.stats.decode_tokens;
    ++stats_.decode_tokens;
    accept(*running_[row], row_of(logits_BV, row));
  }
  const double elapsed_s = seconds_since(start);
  stats_.decode_s += elapsed_s;
  for (const auto& running : running_) running->result.stats.decode_s += elapsed_s;
  drop_finished_rows();
}

void GenerationSession::accept(Running& running, std::span<const float> logits) {
  // A vocabulary padded beyond the tokenizer's has ids without a text.
  logits = logits.first(std::min(logits.size(), static_cast<size_t>(tokenizer_.vocab_size())));
  const int32_t token = running.sampler.sample(logits);
  GenerationResult& result = running.result;
  TokenEvent event{result.request, token, {}, {}, {}, {}};
  if (std::ranges::find(running.request.stop_ids, token) != running.request.stop_ids.end()) {
    result.stop_id = token;
    event.token.reset();
    event.finish = FinishReason::kEos;
  } else {
    result.ids.push_back(token);
    ++result.stats.new_tokens;
    ++stats_.new_tokens;
    if (running.request.with_logprobs) {
      event.logprob = token_logprob(logits, token);
      result.logprobs.push_back(*event.logprob);
    }
    event.text = running.text.push(token);
    if (!running.text.match() && running.is_full()) event.finish = FinishReason::kLength;
  }
  if (event.finish) event.text += running.text.finish(event.finish == FinishReason::kEos);
  // Text that was held back may hold a stop string too.
  if (running.text.match()) event.finish = FinishReason::kStop;
  deliver(running, std::move(event));
}

void GenerationSession::deliver(Running& running, TokenEvent event) {
  running.result.text += event.text;
  const bool goes_on = !running.request.on_token || running.request.on_token(event);
  if (event.finish) {
    finish(running, *event.finish);
  } else if (!goes_on) {
    finish(running, FinishReason::kCancelled);
  }
}

void GenerationSession::finish(Running& running, FinishReason reason) {
  running.is_finished = true;
  running.result.finish = reason;
  if (reason == FinishReason::kCancelled) running.result.text += running.text.finish();
  running.result.stop = running.text.match();
}

void GenerationSession::drop_finished_rows() {
  std::vector<int64_t> kept;
  Requests still_running;
  for (size_t row = 0; row < running_.size(); ++row) {
    if (running_[row]->is_finished) {
      finished_.push_back(std::move(running_[row]->result));
    } else {
      kept.push_back(static_cast<int64_t>(row));
      still_running.push_back(std::move(running_[row]));
    }
  }
  running_ = std::move(still_running);
  if (std::ssize(kept) < batch_.num_rows()) batch_.keep_rows(kept);
}

void GenerationSession::remove_cancelled() {
  if (cancelled_.empty()) return;
  const auto cancel_one = [&](Running& running) {
    if (cancelled_.contains(running.result.request)) finish(running, FinishReason::kCancelled);
  };
  for (const auto& running : running_) cancel_one(*running);
  for (const auto& waiting : waiting_) {
    cancel_one(*waiting);
    if (waiting->is_finished) finished_.push_back(std::move(waiting->result));
  }
  std::erase_if(waiting_, [](const auto& waiting) { return waiting->is_finished; });
  cancelled_.clear();
  drop_finished_rows();
}

}  // namespace smoe
