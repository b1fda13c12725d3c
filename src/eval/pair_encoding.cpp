#include "smoe/eval/pair_encoding.h"

#include <algorithm>

#include "smoe/core/error.h"
#include "smoe/eval/text_filters.h"

namespace smoe {

void drop_left(int64_t count, std::vector<int32_t>& ids, std::vector<ResponseSpan>& responses) {
  ids.erase(ids.begin(), ids.begin() + count);
  std::vector<ResponseSpan> left;
  for (const ResponseSpan& response : responses) {
    if (response.begin > count) left.push_back({response.begin - count, response.end - count});
  }
  responses = std::move(left);
}

PairEncoder::PairEncoder(const Tokenizer& tokenizer, BosPolicy policy, int64_t max_length)
    : tokenizer_(tokenizer), added_token_(leading_token(tokenizer, policy)), max_length_(max_length) {
  SMOE_CHECK(ConfigError, max_length >= 1, "the maximum length is {}; it must be at least 1", max_length);
}

std::vector<int32_t> PairEncoder::encode_text(std::string_view text) const {
  std::vector<int32_t> ids = tokenizer_.encode(text);
  if (added_token_) ids.insert(ids.begin(), *added_token_);
  return ids;
}

int32_t PairEncoder::prefix_token() const {
  const std::optional<int32_t> prefix = added_token_          ? added_token_
                                        : tokenizer_.bos_id() ? tokenizer_.bos_id()
                                                              : tokenizer_.eos_id();
  SMOE_CHECK(ConfigError, prefix.has_value(),
             "{}: the tokenizer defines neither BOS nor EOS, so a text without context cannot be scored",
             tokenizer_.path().string());
  return *prefix;
}

Request PairEncoder::encode(const TextPair& pair, const std::string& where) {
  Request request;
  if (pair.context.empty()) {
    request.context = {prefix_token()};
    request.continuation = tokenizer_.encode(pair.continuation);
    if (request.continuation.size() > 1 && request.continuation.front() == request.context.front()) {
      request.continuation.erase(request.continuation.begin());
    }
  } else {
    // Spaces at the border belong to the continuation: tokenizers glue them to the word that follows.
    const std::string_view context = strip_right(pair.context);
    const std::string continuation = pair.context.substr(context.size()) + pair.continuation;
    const std::vector<int32_t> whole = encode_text(std::string(context) + continuation);
    request.context = encode_text(context);
    if (whole.size() > request.context.size()) {
      request.continuation.assign(whole.begin() + std::ssize(request.context), whole.end());
    } else {
      request.continuation = tokenizer_.encode(continuation);
      ++counts_.empty_continuations;
    }
    // A context of white space alone is all in the continuation.
    if (request.context.empty()) request.context = {prefix_token()};
  }
  finish(request, pair.continuation, where);
  return request;
}

Request PairEncoder::encode_answer(DialoguePrompt prompt, std::string_view answer, const std::string& where) {
  SMOE_CHECK(DataError, !prompt.ids.empty(), "{}: the chat template gives an empty prompt", where);
  Request request;
  request.context = std::move(prompt.ids);
  request.responses = std::move(prompt.responses);
  request.continuation = tokenizer_.encode(answer);
  finish(request, answer, where);
  return request;
}

void PairEncoder::finish(Request& request, std::string_view continuation, const std::string& where) {
  SMOE_CHECK(DataError, !request.continuation.empty(), "{}: the continuation `{}` has no tokens", where,
             continuation);
  truncate(request, where);
  ++counts_.requests;
}

void PairEncoder::truncate(Request& request, const std::string& where) {
  const int64_t room = max_length_ + 1 - std::ssize(request.continuation);
  SMOE_CHECK(DataError, room >= 1,
             "{}: a continuation of {} tokens does not fit into the maximum length {}; raise --max-length of "
             "smoe-eval, or leave the task out of `evaluation.tasks` of a training run, where it is "
             "`data.sequence_length`",
             where, request.continuation.size(), max_length_);
  const int64_t surplus = std::ssize(request.context) - room;
  if (surplus <= 0) return;
  drop_left(surplus, request.context, request.responses);
  ++counts_.truncated;
}

std::vector<Request> PairEncoder::encode_rolling(const std::string& text) {
  const std::vector<int32_t> tokens = tokenizer_.encode(text);
  const int64_t num_tokens = std::ssize(tokens);
  std::vector<Request> windows;
  for (int64_t done = 0; done < num_tokens;) {
    const int64_t length = std::min(max_length_, num_tokens - done);
    Request window;
    if (done == 0) {
      window.context = {prefix_token()};
    } else {
      // Inputs end one token before the last; max_length of them, of which the first predicts token `done`.
      const int64_t begin = std::max<int64_t>(0, done + length - max_length_ - 1);
      window.context.assign(tokens.begin() + begin, tokens.begin() + done);
    }
    window.continuation.assign(tokens.begin() + done, tokens.begin() + done + length);
    windows.push_back(std::move(window));
    done += length;
  }
  counts_.requests += std::ssize(windows);
  return windows;
}

}  // namespace smoe
