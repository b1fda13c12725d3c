// Generation as a loop that the caller turns: requests come and go at any time, every step gives each running
// request one token. A command line, a server and an evaluation drive the same loop.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <unordered_set>
#include <vector>

#include "smoe/data/tokenizer.h"
#include "smoe/infer/decode_batch.h"
#include "smoe/infer/generation.h"
#include "smoe/infer/prefix_cache.h"

namespace smoe {

struct SessionLimits {
  int64_t max_rows = 32;          // requests that run at the same time; the others wait in order
  int64_t prefill_tokens = 8192;  // most tokens of prompts fed at one time, padding included (a longer prompt
                                  // is fed alone)
  int64_t chunk_tokens = 2048;    // longer prompts are fed in pieces (as DecodeBatch::prefill does)
};

// Not thread-safe. A request that needs an expert which cannot be read ends with kFailed, and the others go
// on; after step() has thrown anything else, the session must not be used any more.
class GenerationSession {
 public:
  // `model` and `tokenizer` must outlive the session.
  GenerationSession(const Model& model, const Tokenizer& tokenizer, const SessionLimits& limits = {});
  ~GenerationSession();
  GenerationSession(const GenerationSession&) = delete;
  GenerationSession& operator=(const GenerationSession&) = delete;

  // Checks the request and puts it into the queue; returns its number. Throws DataError for a prompt that
  // cannot be continued (empty, too long, ids outside the vocabulary) and ConfigError for settings out of
  // range.
  int64_t add(GenerationRequest request);
  // Admits waiting requests if there is room, then adds one token to every running request. Returns true
  // while there is work left.
  bool step();
  // Ends a request with what it has; its result appears among the finished ones. Unknown and finished numbers
  // change nothing.
  void cancel(int64_t request);

  // Results since the last call, in the order in which they finished.
  std::vector<GenerationResult> take_finished();
  int64_t num_waiting() const;
  int64_t num_running() const;
  // Of all requests so far.
  const GenerationStats& stats() const { return stats_; }

 private:
  struct Running;

  using Requests = std::vector<std::unique_ptr<Running>>;

  void admit();
  at::Tensor prefill(Requests& group);
  at::Tensor decode_tokens();
  void give_up(Requests& requests, const ExpertReadError& error);
  Requests next_group();
  void decode();
  void accept(Running& running, std::span<const float> logits);
  void deliver(Running& running, TokenEvent event);
  void finish(Running& running, FinishReason reason);
  void drop_finished_rows();
  void remove_cancelled();

  const Model& model_;
  const Tokenizer& tokenizer_;
  SessionLimits limits_;
  DecodeBatch batch_;
  PrefixCache prefixes_;
  std::deque<std::unique_ptr<Running>> waiting_;
  Requests running_;  // one a row of the batch
  std::vector<GenerationResult> finished_;
  std::unordered_set<int64_t> cancelled_;
  int64_t next_request_ = 0;
  GenerationStats stats_;
};

}  // namespace smoe
