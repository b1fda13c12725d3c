#include "request_checks.h"

#include "smoe/core/error.h"

namespace smoe {
namespace {

void check_prompt(const GenerationRequest& request, const ModelConfig& config) {
  SMOE_CHECK(
      DataError, !request.prompt.empty(),
      "the prompt has no tokens, so there is nothing to continue; give it text, or let it begin with the "
      "BOS or EOS token");
  for (size_t i = 0; i < request.prompt.size(); ++i) {
    SMOE_CHECK(
        DataError, request.prompt[i] >= 0 && request.prompt[i] < config.vocab_size,
        "token {} of the prompt has the id {}; the model knows ids 0 to {}, so the prompt was encoded with "
        "another tokenizer",
        i, request.prompt[i], config.vocab_size - 1);
  }
  SMOE_CHECK(
      DataError, !request.context_limit || std::ssize(request.prompt) < *request.context_limit,
      "the prompt has {} tokens, but with a context limit of {} it may have {} at most, so that one new "
      "token fits; shorten the prompt or raise the limit (beyond the length of training, answers get "
      "worse)",
      request.prompt.size(), request.context_limit.value_or(0), request.context_limit.value_or(1) - 1);
}

void check_responses(const GenerationRequest& request) {
  int64_t previous_end = 0;
  for (const ResponseSpan& response : request.responses) {
    SMOE_CHECK(DataError,
               response.begin > previous_end && response.end >= response.begin &&
                   response.end < std::ssize(request.prompt),
               "the earlier answer at tokens [{}, {}) of a prompt of {}: answers come in order, each after at "
               "least one token of its turn, and the prompt goes on after the last one",
               response.begin, response.end, request.prompt.size());
    previous_end = response.end;
  }
}

}  // namespace

void check_request(const GenerationRequest& request, const ModelConfig& config) {
  check_prompt(request, config);
  check_responses(request);
  if (config.architecture != Architecture::kDense) {
    SMOE_CHECK(ConfigError, request.budget >= 0 && request.budget < std::ssize(config.budgets),
               "the budget {} does not exist; the model has {} budgets, numbered from 0", request.budget,
               config.budgets.size());
  }
  SMOE_CHECK(ConfigError, request.segment_length >= 1, "the segment length is {}; it must be at least 1",
             request.segment_length);
  SMOE_CHECK(ConfigError, request.max_new_tokens >= 1, "max_new_tokens is {}; it must be at least 1",
             request.max_new_tokens);
  check_sampling(request.sampling);
}

}  // namespace smoe
