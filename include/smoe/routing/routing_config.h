// Config of segment routing: how logits become masks, and the controls and stabilisers of training.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "smoe/core/config.h"

namespace smoe {

// Which relaxation of "k of E" gives the mask its gradient.
enum class SoftTopKKind {
  // The entropy-regularised linear program (Lei et al. 2023, Ainslie et al. 2023): min(1, exp(s/t + shift)).
  kEntropy,
  kSigmoid,  // binary-entropy variant: sigmoid((s - shift)/t); never saturates
};
template <>
struct EnumNames<SoftTopKKind> {
  static constexpr std::array values = {enum_name(SoftTopKKind::kEntropy, "entropy"),
                                        enum_name(SoftTopKKind::kSigmoid, "sigmoid")};
};

// Which experts give the mask a gradient.
enum class MaskGradient {
  kSelected,  // only experts that were computed; what sparse compute allows
  kAll,       // the full straight-through gradient; computes every expert (ablation)
};
template <>
struct EnumNames<MaskGradient> {
  static constexpr std::array values = {enum_name(MaskGradient::kSelected, "selected"),
                                        enum_name(MaskGradient::kAll, "all")};
};

// Where the masks come from. All but `learned` are controls for experiments.
enum class MaskSource {
  kLearned,           // the mask generator
  kRandom,            // k uniformly random experts a segment and layer
  kPrefix,            // always the first k experts: nested dense sub-networks
  kInputIndependent,  // the mask generator's logits averaged away: one learned mask for all inputs
};
template <>
struct EnumNames<MaskSource> {
  static constexpr std::array values = {enum_name(MaskSource::kLearned, "learned"),
                                        enum_name(MaskSource::kRandom, "random"),
                                        enum_name(MaskSource::kPrefix, "prefix"),
                                        enum_name(MaskSource::kInputIndependent, "input_independent")};
};

// Whose hidden state chooses the experts of a segment. A prompt before an answer is routed by its last token
// in any case (chat_segments.h, routing_mode.h).
enum class SelectorPosition {
  kFirst,         // the segment's own first token (the paper)
  kPreviousLast,  // the token before it: the choice is known a token earlier
  kPreviousMean,  // the mean over the S tokens before it
};
template <>
struct EnumNames<SelectorPosition> {
  static constexpr std::array values = {enum_name(SelectorPosition::kFirst, "first"),
                                        enum_name(SelectorPosition::kPreviousLast, "previous_last"),
                                        enum_name(SelectorPosition::kPreviousMean, "previous_mean")};
};

// What turns a selector's hidden state into logits.
enum class MaskHeadKind {
  kLinear,  // one matrix
  kMlp,     // a hidden layer with SiLU before it
};
template <>
struct EnumNames<MaskHeadKind> {
  static constexpr std::array values = {enum_name(MaskHeadKind::kLinear, "linear"),
                                        enum_name(MaskHeadKind::kMlp, "mlp")};
};

struct MaskHeadConfig {
  MaskHeadKind kind = MaskHeadKind::kLinear;
  int64_t hidden_dim = 128;
  bool normalize_layers = false;
};
template <class Visitor>
void visit_fields(Visitor& visitor, MaskHeadConfig& config) {
  visitor.field("kind", config.kind,
                "what makes logits of a selector's state: one matrix, or a hidden layer first");
  visitor.field("hidden_dim", config.hidden_dim, "kind mlp: width of the hidden layer", at_least(1));
  visitor.field("normalize_layers", config.normalize_layers,
                "bring the logits of every MoE layer to root mean square 1, times a learned factor a layer");
}

enum class BalanceKind {
  kNone,
  kBias,  // a bias an expert and layer, for selection only, moved against the load once a step
  kLoss,  // weight * E/k^2 * sum_e load_e * mean soft mask_e, averaged over layers; 1 when uniform
};
template <>
struct EnumNames<BalanceKind> {
  static constexpr std::array values = {enum_name(BalanceKind::kNone, "none"),
                                        enum_name(BalanceKind::kBias, "bias"),
                                        enum_name(BalanceKind::kLoss, "loss")};
};

struct SoftTopKConfig {
  SoftTopKKind kind = SoftTopKKind::kEntropy;
  double temperature = 1.0;
  std::optional<double> final_temperature;
  double soft_budget_scale = 1.0;
};
template <class Visitor>
void visit_fields(Visitor& visitor, SoftTopKConfig& config) {
  visitor.field("kind", config.kind, "relaxation that carries the gradient of the mask");
  visitor.field(
      "temperature", config.temperature,
      "sharpness relative to the logits' spread; small values stop the gradient of selected experts",
      positive());
  visitor.field("final_temperature", config.final_temperature,
                "linear anneal from `temperature` to this over training; auto: constant", positive());
  visitor.field("soft_budget_scale", config.soft_budget_scale,
                "the soft mask sums to min(scale * k, E); 1 is exact, 1.125 as in CoLT5", at_least(1.0));
}

struct BalanceConfig {
  BalanceKind kind = BalanceKind::kNone;
  double bias_rate = 0.003;
  double loss_weight = 0.01;
};
template <class Visitor>
void visit_fields(Visitor& visitor, BalanceConfig& config) {
  visitor.field("kind", config.kind, "how expert load is kept even (off in the paper)");
  visitor.field("bias_rate", config.bias_rate,
                "kind bias: step of the bias, in logits, once an optimizer step", positive());
  visitor.field("loss_weight", config.loss_weight, "kind loss: weight of the balance loss", at_least(0.0));
}

struct RoutingConfig {
  int64_t segment_length = 32;
  SelectorPosition selector_position = SelectorPosition::kFirst;
  MaskHeadConfig mask_head;
  SoftTopKConfig soft_top_k;
  MaskGradient mask_gradient = MaskGradient::kSelected;
  MaskSource mask_source = MaskSource::kLearned;
  double backbone_gradient_scale = 1.0;
  BalanceConfig balance;
  double selection_noise = 0.0;
  double selection_noise_fraction = 1.0;
  double random_mask_fraction = 0.0;
};
template <class Visitor>
void visit_fields(Visitor& visitor, RoutingConfig& config) {
  visitor.field("segment_length", config.segment_length, "S: tokens for which one choice of experts holds",
                at_least(1));
  visitor.field("selector_position", config.selector_position,
                "which token chooses a segment's experts; none that comes after the segment's first");
  visitor.field("mask_head", config.mask_head, "from that token's hidden state to the logits");
  visitor.field("soft_top_k", config.soft_top_k, "differentiable top-k");
  visitor.field("mask_gradient", config.mask_gradient,
                "experts that give the mask a gradient; all: masked-dense compute, for ablation");
  visitor.field("mask_source", config.mask_source, "where masks come from; all but learned are controls");
  visitor.field(
      "backbone_gradient_scale", config.backbone_gradient_scale,
      "factor on the gradient from the mask generator into the dense layers: 1 the paper, 0 detached",
      at_least(0.0));
  visitor.field("balance", config.balance, "load balancing over experts");
  visitor.field(
      "selection_noise", config.selection_noise,
      "training: standard deviation of Gaussian noise on the logits when experts are selected; 0 off",
      at_least(0.0));
  visitor.field("selection_noise_fraction", config.selection_noise_fraction,
                "share of training over which the noise falls linearly to 0", between(0.0, 1.0));
  visitor.field(
      "random_mask_fraction", config.random_mask_fraction,
      "random-to-learned: a segment's mask is random with a probability that falls from 1 to 0 over this "
      "share of training; 0 off",
      between(0.0, 1.0));
}

}  // namespace smoe
