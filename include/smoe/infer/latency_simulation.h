// When the layers of a decoding model compute and when their experts arrive: an event simulation of two
// resources, the processor and the storage, each doing one thing at a time in the order asked for.
#pragma once

#include <cstdint>
#include <vector>

namespace smoe {

// A resource that works off what it is given, first come, first served. Times in seconds.
class Resource {
 public:
  // Work of `duration` that cannot begin before `ready`; returns when it ends.
  double run(double ready, double duration);
  double free_at() const { return free_at_; }

 private:
  double free_at_ = 0;
};

enum class ExpertLoading {
  kResident,    // nothing is ever loaded (dense models; everything fits)
  kPerSegment,  // Stepped MoE: all layers' experts at the first token of each segment
  kPerToken,    // vanilla MoE: each layer's experts once its router has run, at every token
};

// Seconds that the parts of one token take.
struct DecodeCosts {
  int64_t num_moe_layers = 0;
  double backbone_s = 0;   // embedding and dense layers
  double choice_s = 0;     // mask generator, once a segment
  double attention_s = 0;  // of one MoE layer, the router of a vanilla MoE included
  double experts_s = 0;    // shared and routed experts of one MoE layer
  double head_s = 0;       // final norm and output head
  double load_s = 0;       // reading one layer's experts when none of them is in memory
  // Reading the keys and values of one token of context, in one MoE layer and in all dense layers together.
  double context_attention_s = 0;
  double context_backbone_s = 0;
};

struct DecodeScenario {
  ExpertLoading loading = ExpertLoading::kResident;
  int64_t segment_length = 32;  // kPerSegment
  double hit_rate = 0;          // share of needed experts that are in memory already
  int64_t prompt_tokens = 0;
  int64_t num_tokens = 1;
};

struct DecodeTimes {
  std::vector<double> token_s;
  double stall_s = 0;  // of all tokens: the processor waiting for the storage

  double total_s() const;
};

// At the first token of a segment all loads are queued when the dense layers end; each layer's experts wait
// for their load, the attention before them does not.
DecodeTimes simulate_decode(const DecodeCosts& costs, const DecodeScenario& scenario);

}  // namespace smoe
