// The decoder in its three architectures: dense, Stepped MoE and vanilla MoE.
//
// Shape legend of the model area: B rows, T tokens, D model width, V vocabulary, L MoE layers,
// E experts, Q segments.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "smoe/model/activation_checkpointing.h"
#include "smoe/model/document_lengths.h"
#include "smoe/model/expert_provider.h"
#include "smoe/model/kv_cache.h"
#include "smoe/model/model_config.h"
#include "smoe/model/parameters.h"
#include "smoe/routing/routing_plan.h"
#include "smoe/routing/segment_map.h"

namespace smoe {

// True if all budgets see the same states behind the dense layers, so that these need to run only once for
// them: a size embedding at the input is what tells them apart.
bool dense_states_are_shared(const ModelConfig& config);

// One micro-batch for the model.
struct ModelInput {
  at::Tensor tokens_BT;              // int64 token ids in [0, V)
  at::Tensor positions_BT;           // int64 rotary positions; undefined: 0..T-1 in each row
  at::Tensor attention_BTT;          // bool, true where token i may attend to token j, diagonal always true;
                                     // undefined: causal
  DocumentLengths document_lengths;  // causal attention inside these, instead of a mask; empty: none
  SegmentMap segments;               // routing segments; ignored by dense and vanilla models
  std::vector<int64_t> budget_of_row;  // [B] index into config.budgets; ignored by dense models
  // Model::dense_states() of the same tokens, which then are not computed again; undefined: none. Not
  // together with `cache` or `shared_prefix`.
  at::Tensor dense_states_BTD;

  // Generation: the tokens continue those of the cache (positions and attention follow from it), and segments
  // with selector kCarriedSelector keep the experts of carried_mask_BLE [B, L, E], float32.
  KvCache* cache = nullptr;
  at::Tensor carried_mask_BLE;

  // Scoring: tokens that stand before those of every row, a cache of one row. It is only read; positions_BT,
  // if given, counts them, and attention_BTT is about the tokens after them. Not together with `cache`.
  const KvCache* shared_prefix = nullptr;
};

// Auxiliary sums of the vanilla routers, to be turned into losses over the global batch.
struct TokenRouterLosses {
  at::Tensor probability_sum_LE;  // float32, differentiable: sum over tokens of the softmax
  at::Tensor selected_count_LE;   // int64: tokens that selected the expert
  at::Tensor z_loss_sum;          // float32 scalar, differentiable: sum over layers and tokens of logsumexp^2
  int64_t num_tokens = 0;
};

struct ModelOutput {
  at::Tensor hidden_BTD;  // after the final norm; the head has not been applied
  // float32 logits, where the path for a single token (see Model::forward) has computed them too.
  at::Tensor logits_BV;
  std::optional<RoutingPlan> plan;  // stepped_moe; logits and soft masks of routed segments only
  std::optional<TokenRouterLosses> token_router;  // vanilla_moe
};

// Where a model has the weights of its routed experts.
enum class ExpertPlacement {
  kParameters,  // stacked tensors among its parameters
  kProvider,    // elsewhere: for inference, through an ExpertProvider (CPU, float32)
};

class Model {
 public:
  // Allocates the parameters (uninitialised) on `device`; they require gradients.
  Model(const ModelConfig& config, at::Device device, at::ScalarType dtype = at::kFloat,
        ExpertPlacement placement = ExpertPlacement::kParameters);
  ~Model();
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;

  // Normal with standard deviation 1/sqrt(fan_in) for matrices (an expert's fan-in excludes the expert
  // axis), 1/sqrt(D) for embeddings, ones for norms. A function of (seed, parameter name) only.
  void initialize(uint64_t seed);

  // Which layers compute their activations a second time in the backward pass; none to begin with. Outputs
  // and gradients stay the same. The model must outlive the backward pass.
  void set_activation_checkpointing(const ActivationCheckpointing& checkpointing);

  // Must be set before the first forward of a model with placement kProvider.
  void set_expert_provider(std::shared_ptr<ExpertProvider> provider);

  // Runs the decoder. `controls` default to evaluation (no noise, no random masks). Without gradients, on the
  // CPU in float32, the routed experts run through routed_experts_listed wherever their weights are, so that
  // both placements give the same bits. There, one token of one row that continues a cache takes a path of
  // its own: the same sums in another order, bound by reading the weights.
  ModelOutput forward(const ModelInput& input, const SelectionControls& controls = {}) const;

  // What leaves the dense layers, which come first.
  at::Tensor dense_states(const ModelInput& input) const;

  // Rounds all matrices to what `encoding` can hold, and keeps copies in that encoding, from which single
  // tokens are computed: a half (bf16) or a quarter (int8) of the memory traffic, which is what single tokens
  // wait for first. CPU, float32, inference only.
  void encode_weights(ExpertEncoding encoding);

  // Weight [V, D] of the output head: the token embedding when tied.
  const at::Tensor& output_weight() const;
  // Selection bias [L, E] (balance: bias), else undefined.
  at::Tensor& selection_bias_LE();

  // All parameters and buffers, in a fixed order.
  const std::vector<NamedParameter>& parameters() const;
  const ModelConfig& config() const;
  at::Device device() const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace smoe
