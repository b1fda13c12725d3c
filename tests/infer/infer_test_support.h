// What the tests of the infer area share: a tokenizer without a file, requests, and the logits of the full
// forward pass under segments that are written out here once more, independently of the library.
#pragma once

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <string>
#include <vector>

#include "model/model_test_support.h"
#include "smoe/infer/generation_session.h"
#include "smoe/infer/generator.h"

namespace smoe::testing {

// Pieces joined; id = index of the piece; an empty piece is a special token without text.
class PieceTokenizer : public Tokenizer {
 public:
  explicit PieceTokenizer(std::vector<std::string> pieces) : pieces_(std::move(pieces)) {
    path_ = "pieces.model";
  }
  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> ids;
    while (!text.empty()) {
      size_t best = pieces_.size();
      for (size_t id = 0; id < pieces_.size(); ++id) {
        const bool fits = !pieces_[id].empty() && text.starts_with(pieces_[id]);
        if (fits && (best == pieces_.size() || pieces_[id].size() > pieces_[best].size())) best = id;
      }
      ids.push_back(static_cast<int32_t>(best));
      text.remove_prefix(pieces_.at(best).size());
    }
    return ids;
  }
  std::vector<int32_t> encode_with_special_tokens(std::string_view text) const override {
    return encode(text);
  }
  std::string decode(const std::vector<int32_t>& ids, bool) const override {
    std::string text;
    for (const int32_t id : ids) text += pieces_.at(static_cast<size_t>(id));
    return text;
  }
  int64_t vocab_size() const override { return std::ssize(pieces_); }
  std::optional<int32_t> bos_id() const override { return bos; }
  std::optional<int32_t> eos_id() const override { return eos; }
  std::string token(int32_t id) const override { return pieces_.at(static_cast<size_t>(id)); }
  std::optional<int32_t> token_id(std::string_view) const override { return std::nullopt; }

  std::optional<int32_t> bos, eos;

 private:
  std::vector<std::string> pieces_;
};

// One word an id for the tiny models: " w0" .. " w60".
inline PieceTokenizer word_tokenizer(int64_t vocab_size = 61) {
  std::vector<std::string> pieces;
  for (int64_t id = 0; id < vocab_size; ++id) pieces.push_back(fmt::format(" w{}", id));
  return PieceTokenizer(pieces);
}

inline std::vector<int32_t> random_prompt(int64_t length, int64_t seed, int64_t vocab_size = 61) {
  const at::Tensor ids = random_tokens(1, length, vocab_size, seed);
  const int64_t* begin = ids.const_data_ptr<int64_t>();
  return {begin, begin + length};
}

inline GenerationRequest greedy_request(std::vector<int32_t> prompt, int64_t budget, int64_t segment_length,
                                        RoutingMode routing, int64_t max_new_tokens) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.budget = budget;
  request.segment_length = segment_length;
  request.routing = routing;
  request.max_new_tokens = max_new_tokens;
  request.sampling.temperature = 0;
  request.with_logprobs = true;
  return request;
}

// A segment that is routed by tokens before it, of which there are at least S.
inline Segment segment_behind(int64_t begin, int64_t end, int64_t segment_length, SelectorPosition position) {
  if (position == SelectorPosition::kFirst) return {0, begin, end, begin};
  return {0, begin, end, begin - 1, position == SelectorPosition::kPreviousMean ? segment_length : 1};
}

// One row: the prompt of `request`, then `ids`, under the segments of the request.
inline ModelInput full_input(const GenerationRequest& request, const std::vector<int32_t>& ids,
                             SelectorPosition position = SelectorPosition::kFirst) {
  std::vector<int64_t> tokens(request.prompt.begin(), request.prompt.end());
  tokens.insert(tokens.end(), ids.begin(), ids.end());
  const int64_t num_tokens = std::ssize(tokens);
  const int64_t prompt = std::ssize(request.prompt);
  ModelInput input;
  input.tokens_BT = at::tensor(tokens, at::TensorOptions().dtype(at::kLong)).unsqueeze(0);
  input.budget_of_row = {request.budget};
  input.segments = fixed_segments(1, num_tokens, request.segment_length, position);
  if (request.routing == RoutingMode::kLastPromptToken) {
    // Turn by turn: the rest of the turn's prompt and the first S tokens of its answer, then S at a time.
    input.segments.segments.clear();
    int64_t turn = 0;
    for (const ResponseSpan& response : request.responses) {
      int64_t at = std::min(response.begin + request.segment_length, response.end);
      input.segments.segments.push_back({0, turn, at, response.begin - 1});
      for (; at < response.end; at += request.segment_length) {
        input.segments.segments.push_back(segment_behind(
            at, std::min(at + request.segment_length, response.end), request.segment_length, position));
      }
      turn = response.end;
    }
    int64_t end = std::min(prompt + request.segment_length, num_tokens);
    input.segments.segments.push_back({0, turn, end, prompt - 1});
    for (; end < num_tokens; end += request.segment_length) {
      input.segments.segments.push_back(segment_behind(
          end, std::min(end + request.segment_length, num_tokens), request.segment_length, position));
    }
  }
  return input;
}

// float32 logits [T, V] of that row.
inline at::Tensor full_forward_logits(const Model& model, const GenerationRequest& request,
                                      const std::vector<int32_t>& ids) {
  const at::NoGradGuard no_gradients;
  return logits_of(model, full_input(request, ids, model.config().routing.selector_position))[0];
}

// How many of `ids` the row has before it needs expert `expert` of MoE layer `layer`; -1 if it never does.
// The last id is chosen, but never fed.
inline int64_t first_use_of_expert(const Model& model, const GenerationRequest& request,
                                   const std::vector<int32_t>& ids, int64_t layer, int64_t expert) {
  const at::NoGradGuard no_gradients;
  const ModelInput input = full_input(request, {ids.begin(), ids.end() - 1});
  const at::Tensor mask_QLE = model.forward(input).plan->mask_QLE;
  for (int64_t q = 0; q < mask_QLE.size(0); ++q) {
    if (mask_QLE[q][layer][expert].item<float>() == 0) continue;
    const int64_t begin = input.segments.segments[static_cast<size_t>(q)].begin;
    return std::max<int64_t>(0, begin - std::ssize(request.prompt) + 1);
  }
  return -1;
}

}  // namespace smoe::testing
