#include "smoe/model/model.h"

#include <utility>

#include "smoe/core/error.h"
#include "smoe/model/initialization.h"
#include "smoe/model/layers.h"
#include "smoe/model/mask_generator.h"
#include "smoe/model/routed_experts.h"
#include "smoe/model/token_router.h"

namespace smoe {
namespace {

// One decoder layer; which of the members are defined depends on its kind.
struct Layer {
  at::Tensor attention_norm;
  AttentionWeights attention;
  at::Tensor ffn_norm;
  SwigluWeights feed_forward;   // dense layers
  SwigluWeights shared_expert;  // MoE layers with shared experts
  ExpertWeights routed_experts;
  at::Tensor router_ED;  // vanilla MoE
};

// Allocates parameters and keeps the list of their names.
class ParameterFactory {
 public:
  ParameterFactory(at::TensorOptions options, std::vector<NamedParameter>& parameters)
      : options_(options), parameters_(parameters) {}

  at::Tensor add(const std::string& name, at::IntArrayRef shape, ParameterKind kind) {
    at::Tensor tensor = at::empty(shape, options_);
    tensor.set_requires_grad(kind != ParameterKind::kBuffer);
    parameters_.push_back({name, tensor, kind});
    return tensor;
  }

 private:
  at::TensorOptions options_;
  std::vector<NamedParameter>& parameters_;
};

SwigluWeights add_swiglu(ParameterFactory& factory, const std::string& prefix, int64_t hidden, int64_t dim) {
  SwigluWeights weights;
  weights.gate_FD = factory.add(prefix + ".gate_proj.weight", {hidden, dim}, ParameterKind::kMatrix);
  weights.up_FD = factory.add(prefix + ".up_proj.weight", {hidden, dim}, ParameterKind::kMatrix);
  weights.down_DF = factory.add(prefix + ".down_proj.weight", {dim, hidden}, ParameterKind::kMatrix);
  return weights;
}

AttentionWeights add_attention(ParameterFactory& factory, const std::string& prefix,
                               const ModelConfig& config) {
  const int64_t q_dim = config.num_heads * config.head_dim;
  const int64_t kv_dim = config.num_kv_heads * config.head_dim;
  AttentionWeights weights;
  weights.q_proj = factory.add(prefix + ".q_proj.weight", {q_dim, config.dim}, ParameterKind::kMatrix);
  weights.k_proj = factory.add(prefix + ".k_proj.weight", {kv_dim, config.dim}, ParameterKind::kMatrix);
  weights.v_proj = factory.add(prefix + ".v_proj.weight", {kv_dim, config.dim}, ParameterKind::kMatrix);
  weights.o_proj = factory.add(prefix + ".o_proj.weight", {config.dim, q_dim}, ParameterKind::kMatrix);
  if (config.qk_norm) {
    weights.q_norm = factory.add(prefix + ".q_norm.weight", {config.head_dim}, ParameterKind::kNorm);
    weights.k_norm = factory.add(prefix + ".k_norm.weight", {config.head_dim}, ParameterKind::kNorm);
  }
  return weights;
}

ExpertWeights add_experts(ParameterFactory& factory, const std::string& prefix, const ModelConfig& config) {
  const int64_t num_experts = config.num_experts;
  ExpertWeights weights;
  weights.gate_EhD = factory.add(prefix + ".gate_proj.weight", {num_experts, config.expert_dim, config.dim},
                                 ParameterKind::kMatrix);
  weights.up_EhD = factory.add(prefix + ".up_proj.weight", {num_experts, config.expert_dim, config.dim},
                               ParameterKind::kMatrix);
  weights.down_EDh = factory.add(prefix + ".down_proj.weight", {num_experts, config.dim, config.expert_dim},
                                 ParameterKind::kMatrix);
  return weights;
}

Layer add_layer(ParameterFactory& factory, int64_t index, const ModelConfig& config) {
  const std::string prefix = fmt::format("layers.{}", index);
  Layer layer;
  layer.attention_norm = factory.add(prefix + ".attention_norm.weight", {config.dim}, ParameterKind::kNorm);
  layer.attention = add_attention(factory, prefix + ".attention", config);
  layer.ffn_norm = factory.add(prefix + ".ffn_norm.weight", {config.dim}, ParameterKind::kNorm);
  if (index < config.num_dense_layers) {
    layer.feed_forward = add_swiglu(factory, prefix + ".feed_forward", config.dense_ffn_dim, config.dim);
    return layer;
  }
  if (config.shared_dim() > 0) {
    layer.shared_expert = add_swiglu(factory, prefix + ".shared_expert", config.shared_dim(), config.dim);
  }
  layer.routed_experts = add_experts(factory, prefix + ".routed_experts", config);
  if (config.architecture == Architecture::kVanillaMoe) {
    layer.router_ED =
        factory.add(prefix + ".router.weight", {config.num_experts, config.dim}, ParameterKind::kRouter);
  }
  return layer;
}

// The map's segments as ranges of the flattened tokens.
std::vector<TokenRange> flattened_ranges(const SegmentMap& segments) {
  std::vector<TokenRange> ranges;
  ranges.reserve(segments.segments.size());
  for (const Segment& segment : segments.segments) {
    const int64_t offset = segment.row * segments.num_tokens;
    ranges.push_back({offset + segment.begin, offset + segment.end});
  }
  return ranges;
}

std::vector<TokenRange> single_token_ranges(int64_t num_tokens) {
  std::vector<TokenRange> ranges(static_cast<size_t>(num_tokens));
  for (int64_t token = 0; token < num_tokens; ++token) {
    ranges[static_cast<size_t>(token)] = {token, token + 1};
  }
  return ranges;
}

}  // namespace

struct Model::Implementation {
  ModelConfig config;
  at::Device device = at::kCPU;
  std::vector<NamedParameter> parameters;
  at::Tensor token_embedding_VD;
  at::Tensor size_embedding;  // [budgets, D]
  std::vector<Layer> layers;
  MaskGeneratorWeights mask_generator;
  at::Tensor selection_bias_LE;
  at::Tensor final_norm;
  at::Tensor output_VD;  // undefined when tied

  Implementation(const ModelConfig& model_config, at::Device model_device, at::ScalarType dtype);

  void check_input(const ModelInput& input) const;
  int64_t experts_of_row(const ModelInput& input, int64_t row) const;
  at::Tensor count_per_segment(const ModelInput& input) const;
  at::Tensor count_per_token(const ModelInput& input) const;
  at::Tensor size_embedding_BD(const ModelInput& input) const;
  at::Tensor attend(const Layer& layer, const at::Tensor& h_BTD, const ModelInput& input,
                    const RotaryTable& table) const;
  RoutingPlan route_segments(const at::Tensor& h_BTD, const ModelInput& input,
                             const SelectionControls& controls) const;
  at::Tensor moe_feed_forward(const Layer& layer, const at::Tensor& x_BTD, const at::Tensor& mask,
                              const std::vector<TokenRange>& ranges) const;
  at::Tensor token_routing_mask(const Layer& layer, const at::Tensor& x_BTD, const at::Tensor& count_N,
                                TokenRouterLosses& losses) const;
};

Model::Implementation::Implementation(const ModelConfig& model_config, at::Device model_device,
                                      at::ScalarType dtype)
    : config(model_config), device(model_device) {
  ParameterFactory factory(at::TensorOptions().dtype(dtype).device(device), parameters);
  token_embedding_VD =
      factory.add("token_embedding.weight", {config.vocab_size, config.dim}, ParameterKind::kEmbedding);
  const bool stepped = config.architecture == Architecture::kSteppedMoe;
  if (stepped && config.size_embedding != SizeEmbedding::kNone) {
    size_embedding = factory.add("size_embedding.weight", {std::ssize(config.budgets), config.dim},
                                 ParameterKind::kEmbedding);
  }
  for (int64_t index = 0; index < config.num_layers(); ++index) {
    layers.push_back(add_layer(factory, index, config));
  }
  if (stepped) {
    mask_generator.norm = factory.add("mask_generator.norm.weight", {config.dim}, ParameterKind::kNorm);
    mask_generator.proj =
        factory.add("mask_generator.proj.weight", {config.num_moe_layers * config.num_experts, config.dim},
                    ParameterKind::kRouter);
    if (config.routing.balance.kind == BalanceKind::kBias) {
      selection_bias_LE = factory.add("mask_generator.selection_bias",
                                      {config.num_moe_layers, config.num_experts}, ParameterKind::kBuffer);
    }
  }
  final_norm = factory.add("final_norm.weight", {config.dim}, ParameterKind::kNorm);
  if (!config.tied_embeddings) {
    output_VD = factory.add("output.weight", {config.vocab_size, config.dim}, ParameterKind::kEmbedding);
  }
}

void Model::Implementation::check_input(const ModelInput& input) const {
  SMOE_ASSERT(input.tokens_BT.dim() == 2 && input.tokens_BT.scalar_type() == at::kLong);
  const auto num_rows = static_cast<size_t>(input.tokens_BT.size(0));
  if (config.architecture != Architecture::kDense) {
    SMOE_ASSERT(input.budget_of_row.size() == num_rows);
    for (const int64_t budget : input.budget_of_row) {
      SMOE_ASSERT(budget >= 0 && budget < std::ssize(config.budgets));
    }
  }
  if (config.architecture == Architecture::kSteppedMoe) {
    SMOE_ASSERT(input.segments.num_rows == input.tokens_BT.size(0));
    SMOE_ASSERT(input.segments.num_tokens == input.tokens_BT.size(1));
  }
}

int64_t Model::Implementation::experts_of_row(const ModelInput& input, int64_t row) const {
  const auto budget = static_cast<size_t>(input.budget_of_row[static_cast<size_t>(row)]);
  return config.budgets[budget].experts_per_layer;
}

at::Tensor Model::Implementation::count_per_segment(const ModelInput& input) const {
  at::Tensor count_Q = at::empty({input.segments.num_segments()}, at::kLong);
  int64_t* count = count_Q.mutable_data_ptr<int64_t>();
  for (const Segment& segment : input.segments.segments) {
    *count++ = experts_of_row(input, segment.row);
  }
  return count_Q;
}

at::Tensor Model::Implementation::count_per_token(const ModelInput& input) const {
  const int64_t num_rows = input.tokens_BT.size(0);
  const int64_t num_tokens = input.tokens_BT.size(1);
  at::Tensor count_BT = at::empty({num_rows, num_tokens}, at::kLong);
  for (int64_t row = 0; row < num_rows; ++row) {
    count_BT[row].fill_(experts_of_row(input, row));
  }
  return count_BT.flatten();
}

at::Tensor Model::Implementation::size_embedding_BD(const ModelInput& input) const {
  const at::Tensor budgets_B =
      at::tensor(input.budget_of_row, at::TensorOptions().dtype(at::kLong)).to(device);
  return size_embedding.index_select(0, budgets_B);
}

at::Tensor Model::Implementation::attend(const Layer& layer, const at::Tensor& h_BTD, const ModelInput& input,
                                         const RotaryTable& table) const {
  const at::Tensor normed = rms_norm(h_BTD, layer.attention_norm, config.norm_eps);
  return h_BTD + attention(normed, layer.attention, config, table, input.attention_BTT);
}

RoutingPlan Model::Implementation::route_segments(const at::Tensor& h_BTD, const ModelInput& input,
                                                  const SelectionControls& controls) const {
  at::Tensor router_offset_BD;
  if (config.size_embedding == SizeEmbedding::kRouterOnly) {
    router_offset_BD = size_embedding_BD(input);
  }
  const at::Tensor logits_QLE =
      mask_logits(h_BTD.flatten(0, 1), mask_generator, input.segments, router_offset_BD, config);
  return make_routing_plan(logits_QLE, count_per_segment(input), config.routing, controls, selection_bias_LE);
}

at::Tensor Model::Implementation::moe_feed_forward(const Layer& layer, const at::Tensor& x_BTD,
                                                   const at::Tensor& mask,
                                                   const std::vector<TokenRange>& ranges) const {
  const at::Tensor routed = routed_experts(x_BTD.flatten(0, 1), layer.routed_experts,
                                           mask.to(x_BTD.scalar_type()), ranges, config.routing.mask_gradient)
                                .view_as(x_BTD);
  return layer.shared_expert.gate_FD.defined() ? swiglu(x_BTD, layer.shared_expert) + routed : routed;
}

at::Tensor Model::Implementation::token_routing_mask(const Layer& layer, const at::Tensor& x_BTD,
                                                     const at::Tensor& count_N,
                                                     TokenRouterLosses& losses) const {
  const TokenRouting routing =
      route_tokens(x_BTD.flatten(0, 1), layer.router_ED, count_N, config.token_router);
  const at::Tensor probability_sum_1E = routing.probability_sum_E.unsqueeze(0);
  const at::Tensor count_1E = routing.selected_count_E.unsqueeze(0);
  if (!losses.probability_sum_LE.defined()) {
    losses.probability_sum_LE = probability_sum_1E;
    losses.selected_count_LE = count_1E;
    losses.z_loss_sum = routing.z_loss_sum;
  } else {
    losses.probability_sum_LE = at::cat({losses.probability_sum_LE, probability_sum_1E});
    losses.selected_count_LE = at::cat({losses.selected_count_LE, count_1E});
    losses.z_loss_sum = losses.z_loss_sum + routing.z_loss_sum;
  }
  losses.num_tokens = x_BTD.size(0) * x_BTD.size(1);
  return routing.weight_NE;
}

Model::Model(const ModelConfig& config, at::Device device, at::ScalarType dtype)
    : implementation_(std::make_unique<Implementation>(config, device, dtype)) {}
Model::~Model() = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;

void Model::initialize(uint64_t seed) {
  initialize_parameters(implementation_->parameters, implementation_->config, seed);
}

ModelOutput Model::forward(const ModelInput& input, const SelectionControls& controls) const {
  const Implementation& self = *implementation_;
  const ModelConfig& config = self.config;
  self.check_input(input);
  const at::Tensor positions = input.positions_BT.defined()
                                   ? input.positions_BT
                                   : at::arange(input.tokens_BT.size(1), input.tokens_BT.options());
  const RotaryTable table =
      rotary_table(positions, config.head_dim, config.rope_theta, self.token_embedding_VD.scalar_type());

  at::Tensor h_BTD = at::embedding(self.token_embedding_VD, input.tokens_BT);
  if (self.size_embedding.defined() && config.size_embedding == SizeEmbedding::kInput) {
    h_BTD = h_BTD + self.size_embedding_BD(input).unsqueeze(1);
  }
  ModelOutput output;
  const auto first_moe = static_cast<size_t>(config.num_dense_layers);
  for (size_t index = 0; index < first_moe; ++index) {
    const Layer& layer = self.layers[index];
    h_BTD = self.attend(layer, h_BTD, input, table);
    h_BTD = h_BTD + swiglu(rms_norm(h_BTD, layer.ffn_norm, config.norm_eps), layer.feed_forward);
  }

  std::vector<TokenRange> ranges;
  at::Tensor count_N;
  if (config.architecture == Architecture::kSteppedMoe) {
    output.plan = self.route_segments(h_BTD, input, controls);
    ranges = flattened_ranges(input.segments);
  } else if (config.architecture == Architecture::kVanillaMoe) {
    output.token_router.emplace();
    ranges = single_token_ranges(input.tokens_BT.numel());
    count_N = self.count_per_token(input);
  }
  for (size_t index = first_moe; index < self.layers.size(); ++index) {
    const Layer& layer = self.layers[index];
    h_BTD = self.attend(layer, h_BTD, input, table);
    const at::Tensor normed = rms_norm(h_BTD, layer.ffn_norm, config.norm_eps);
    const at::Tensor mask = output.plan
                                ? output.plan->mask_QLE.select(1, static_cast<int64_t>(index - first_moe))
                                : self.token_routing_mask(layer, normed, count_N, *output.token_router);
    h_BTD = h_BTD + self.moe_feed_forward(layer, normed, mask, ranges);
  }
  output.hidden_BTD = rms_norm(h_BTD, self.final_norm, config.norm_eps);
  return output;
}

const at::Tensor& Model::output_weight() const {
  return implementation_->output_VD.defined() ? implementation_->output_VD
                                              : implementation_->token_embedding_VD;
}
at::Tensor& Model::selection_bias_LE() { return implementation_->selection_bias_LE; }
const std::vector<NamedParameter>& Model::parameters() const { return implementation_->parameters; }
const ModelConfig& Model::config() const { return implementation_->config; }
at::Device Model::device() const { return implementation_->device; }

}  // namespace smoe
