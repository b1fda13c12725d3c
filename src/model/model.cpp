#include "smoe/model/model.h"

#include <utility>

#include "decoder_layer.h"
#include "smoe/core/error.h"
#include "smoe/model/initialization.h"
#include "smoe/model/layers.h"
#include "smoe/model/mask_generator.h"
#include "smoe/model/routed_experts.h"
#include "smoe/model/routed_experts_listed.h"
#include "smoe/model/token_router.h"

namespace smoe {
namespace {

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

// What every layer of one forward needs.
struct ForwardContext {
  const ModelInput* input = nullptr;
  RotaryTable rotary;
  at::Tensor attention_mask;
  const KvCache* prefix = nullptr;  // before the tokens of all rows
};

// What the MoE layers of a forward without gradients have instead of stacked weights.
struct InferenceExperts {
  ExpertDemand demand;
  std::vector<int64_t> row_of_range;         // batch row of each token range
  std::unique_ptr<ExpertDelivery> delivery;  // null where the weights are parameters
};

// Inference on the CPU needs no stacked weights and has a faster path for single tokens.
bool runs_listed(const at::Tensor& h_BTD) {
  return !at::GradMode::is_enabled() && h_BTD.is_cpu() && h_BTD.scalar_type() == at::kFloat;
}

at::Tensor add_shared_expert(const DecoderLayer& layer, const at::Tensor& x_BTD,
                             const at::Tensor& routed_BTD) {
  return layer.shared_expert.gate_FD.defined() ? swiglu(x_BTD, layer.shared_expert) + routed_BTD : routed_BTD;
}

// The segments that make a choice of their own, as opposed to carrying on an earlier one.
SegmentMap routed_segments(const SegmentMap& segments, std::vector<int64_t>& indices) {
  SegmentMap routed{segments.num_rows, segments.num_tokens, {}};
  for (size_t index = 0; index < segments.segments.size(); ++index) {
    if (segments.segments[index].selector != kCarriedSelector) {
      routed.segments.push_back(segments.segments[index]);
      indices.push_back(static_cast<int64_t>(index));
    }
  }
  return routed;
}

}  // namespace

struct Model::Implementation {
  ModelConfig config;
  at::Device device = at::kCPU;
  std::vector<NamedParameter> parameters;
  at::Tensor token_embedding_VD;
  at::Tensor size_embedding;  // [budgets, D]
  std::vector<DecoderLayer> layers;
  MaskGeneratorWeights mask_generator;
  at::Tensor selection_bias_LE;
  at::Tensor final_norm;
  at::Tensor output_VD;  // undefined when tied
  ExpertPlacement placement;
  std::shared_ptr<ExpertProvider> provider;

  Implementation(const ModelConfig& model_config, at::Device model_device, at::ScalarType dtype,
                 ExpertPlacement expert_placement);

  void check_input(const ModelInput& input) const;
  int64_t experts_of_row(const ModelInput& input, int64_t row) const;
  at::Tensor count_per_segment(const SegmentMap& segments, const ModelInput& input) const;
  at::Tensor count_per_token(const ModelInput& input) const;
  at::Tensor size_embedding_BD(const ModelInput& input) const;
  ForwardContext make_context(const ModelInput& input) const;
  at::Tensor embed(const ModelInput& input) const;
  at::Tensor attend(int64_t index, const at::Tensor& h_BTD, const ForwardContext& context) const;
  at::Tensor run_dense_layers(at::Tensor h_BTD, const ForwardContext& context) const;
  at::Tensor run_moe_layers(at::Tensor h_BTD, const ForwardContext& context, ModelOutput& output) const;
  RoutingPlan route_segments(const at::Tensor& h_BTD, const ModelInput& input,
                             const SelectionControls& controls) const;
  InferenceExperts start_inference_experts(const ModelInput& input, const ModelOutput& output) const;
  at::Tensor run_listed_experts(int64_t moe_layer, const at::Tensor& x_ND, const at::Tensor& mask_QE,
                                const std::vector<TokenRange>& ranges, const InferenceExperts& experts) const;
  std::vector<ExpertView> wait_for_experts(int64_t moe_layer, const std::vector<int64_t>& experts,
                                           const at::Tensor& mask_QE,
                                           const InferenceExperts& inference) const;
  at::Tensor token_routing_mask(const DecoderLayer& layer, const at::Tensor& x_BTD, const at::Tensor& count_N,
                                TokenRouterLosses& losses) const;
};

Model::Implementation::Implementation(const ModelConfig& model_config, at::Device model_device,
                                      at::ScalarType dtype, ExpertPlacement expert_placement)
    : config(model_config), device(model_device), placement(expert_placement) {
  ParameterFactory factory(at::TensorOptions().dtype(dtype).device(device), parameters);
  token_embedding_VD =
      factory.add("token_embedding.weight", {config.vocab_size, config.dim}, ParameterKind::kEmbedding);
  const bool stepped = config.architecture == Architecture::kSteppedMoe;
  if (stepped && config.size_embedding != SizeEmbedding::kNone) {
    size_embedding = factory.add("size_embedding.weight", {std::ssize(config.budgets), config.dim},
                                 ParameterKind::kEmbedding);
  }
  for (int64_t index = 0; index < config.num_layers(); ++index) {
    layers.push_back(add_decoder_layer(factory, index, config, placement));
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
  SMOE_ASSERT(input.shared_prefix == nullptr ||
              (input.cache == nullptr && input.shared_prefix->num_rows() == 1));
}

int64_t Model::Implementation::experts_of_row(const ModelInput& input, int64_t row) const {
  const auto budget = static_cast<size_t>(input.budget_of_row[static_cast<size_t>(row)]);
  return config.budgets[budget].experts_per_layer;
}

at::Tensor Model::Implementation::count_per_segment(const SegmentMap& segments,
                                                    const ModelInput& input) const {
  at::Tensor count_Q = at::empty({segments.num_segments()}, at::kLong);
  int64_t* count = count_Q.mutable_data_ptr<int64_t>();
  for (const Segment& segment : segments.segments) {
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

ForwardContext Model::Implementation::make_context(const ModelInput& input) const {
  ForwardContext context{&input, {}, {}, input.cache ? input.cache->prefix() : input.shared_prefix};
  const int64_t num_tokens = input.tokens_BT.size(1);
  const at::ScalarType dtype = token_embedding_VD.scalar_type();
  at::Tensor positions = input.positions_BT;
  if (!positions.defined()) {
    const int64_t first = input.shared_prefix ? input.shared_prefix->lengths().front() : 0;
    positions = input.cache ? input.cache->next_positions(num_tokens)
                            : at::arange(first, first + num_tokens, input.tokens_BT.options());
  }
  at::Tensor allowed = input.attention_BTT;
  if (input.cache) {
    SMOE_ASSERT(!input.attention_BTT.defined() && input.cache->num_rows() == input.tokens_BT.size(0));
    allowed = input.cache->attention_mask(num_tokens);
  }
  // Made once: attention would make it anew, and training keep it, in every layer.
  if (allowed.defined()) context.attention_mask = additive_mask(allowed, dtype);
  context.rotary = rotary_table(positions, config.head_dim, config.rope_theta, dtype);
  return context;
}

at::Tensor Model::Implementation::embed(const ModelInput& input) const {
  const at::Tensor h_BTD = at::embedding(token_embedding_VD, input.tokens_BT);
  const bool at_input = size_embedding.defined() && config.size_embedding == SizeEmbedding::kInput;
  return at_input ? h_BTD + size_embedding_BD(input).unsqueeze(1) : h_BTD;
}

at::Tensor Model::Implementation::attend(int64_t index, const at::Tensor& h_BTD,
                                         const ForwardContext& context) const {
  const DecoderLayer& layer = layers[static_cast<size_t>(index)];
  const at::Tensor normed = rms_norm(h_BTD, layer.attention_norm, config.norm_eps);
  return h_BTD + attention(normed, layer.attention, config, context.rotary, context.attention_mask,
                           {context.input->cache, context.prefix, index});
}

at::Tensor Model::Implementation::run_dense_layers(at::Tensor h_BTD, const ForwardContext& context) const {
  for (int64_t index = 0; index < config.num_dense_layers; ++index) {
    const DecoderLayer& layer = layers[static_cast<size_t>(index)];
    h_BTD = attend(index, h_BTD, context);
    h_BTD = h_BTD + swiglu(rms_norm(h_BTD, layer.ffn_norm, config.norm_eps), layer.feed_forward);
  }
  return h_BTD;
}

RoutingPlan Model::Implementation::route_segments(const at::Tensor& h_BTD, const ModelInput& input,
                                                  const SelectionControls& controls) const {
  std::vector<int64_t> indices;
  const SegmentMap routed = routed_segments(input.segments, indices);
  if (routed.segments.empty()) {
    // Most steps of a generation: nothing to choose.
    SMOE_ASSERT(input.carried_mask_BLE.defined());
    RoutingPlan carried;
    carried.mask_QLE =
        input.carried_mask_BLE.index_select(0, input.segments.segment_rows().to(h_BTD.device()));
    return carried;
  }
  at::Tensor router_offset_BD;
  if (config.size_embedding == SizeEmbedding::kRouterOnly) {
    router_offset_BD = size_embedding_BD(input);
  }
  const at::Tensor logits_QLE =
      mask_logits(h_BTD.flatten(0, 1), mask_generator, routed, router_offset_BD, config);
  RoutingPlan plan = make_routing_plan(logits_QLE, count_per_segment(routed, input), config.routing, controls,
                                       selection_bias_LE);
  if (routed.num_segments() < input.segments.num_segments()) {
    // The carried segments keep the masks of their rows; the others get the new ones.
    SMOE_ASSERT(input.carried_mask_BLE.defined());
    const at::Tensor carried_QLE =
        input.carried_mask_BLE.index_select(0, input.segments.segment_rows().to(h_BTD.device()));
    const at::Tensor index_Q = at::tensor(indices, at::TensorOptions().dtype(at::kLong)).to(h_BTD.device());
    plan.mask_QLE = carried_QLE.index_copy(0, index_Q, plan.mask_QLE);
  }
  return plan;
}

InferenceExperts Model::Implementation::start_inference_experts(const ModelInput& input,
                                                                const ModelOutput& output) const {
  InferenceExperts experts;
  const int64_t num_tokens = input.tokens_BT.size(1);
  if (output.plan) {
    for (const Segment& segment : input.segments.segments) experts.row_of_range.push_back(segment.row);
  } else {
    for (int64_t n = 0; n < input.tokens_BT.numel(); ++n) experts.row_of_range.push_back(n / num_tokens);
  }
  if (output.plan) {
    experts.demand.experts_of_layer = selected_experts(output.plan->mask_QLE);
    experts.demand.is_new_choice = output.plan->count_Q.defined();
  }
  if (placement == ExpertPlacement::kProvider) {
    SMOE_ASSERT(provider != nullptr);
    experts.delivery = provider->begin(experts.demand);
  }
  return experts;
}

// Adds to an error of the provider which rows cannot go on.
std::vector<ExpertView> Model::Implementation::wait_for_experts(int64_t moe_layer,
                                                                const std::vector<int64_t>& experts,
                                                                const at::Tensor& mask_QE,
                                                                const InferenceExperts& inference) const {
  try {
    return inference.delivery->wait(moe_layer, experts);
  } catch (const ExpertReadError& error) {
    const at::Tensor needs_Q = mask_QE.select(1, error.expert()).ne(0).contiguous();
    std::vector<int64_t> rows;
    for (size_t range = 0; range < inference.row_of_range.size(); ++range) {
      const int64_t row = inference.row_of_range[range];
      if (needs_Q.const_data_ptr<bool>()[range] && (rows.empty() || rows.back() != row)) rows.push_back(row);
    }
    throw ExpertReadError(error, std::move(rows));
  }
}

// In parts, where the provider cannot hold all experts of the layer together.
at::Tensor Model::Implementation::run_listed_experts(int64_t moe_layer, const at::Tensor& x_ND,
                                                     const at::Tensor& mask_QE,
                                                     const std::vector<TokenRange>& ranges,
                                                     const InferenceExperts& inference) const {
  const auto& planned = inference.demand.experts_of_layer;
  std::vector<int64_t> selected = planned.empty() ? selected_experts(mask_QE.unsqueeze(1)).front()
                                                  : planned[static_cast<size_t>(moe_layer)];
  if (!inference.delivery) {
    const DecoderLayer& layer = layers[static_cast<size_t>(config.num_dense_layers + moe_layer)];
    return routed_experts_listed(x_ND, list_resident_experts(layer.routed_experts, std::move(selected)),
                                 mask_QE, ranges);
  }
  const ExpertShape shape{config.dim, config.expert_dim};
  ListedExpertsSum sum(x_ND, shape, mask_QE, ranges);
  const int64_t count = std::ssize(selected);
  const int64_t most = std::min(count, provider->most_experts());
  for (int64_t begin = 0; begin < count; begin += most) {
    const auto first = selected.begin() + begin;
    std::vector<int64_t> part(first, first + std::min(most, count - begin));
    std::vector<ExpertView> views = wait_for_experts(moe_layer, part, mask_QE, inference);
    sum.add({shape, std::move(part), std::move(views)});
  }
  return sum.total();
}

at::Tensor Model::Implementation::token_routing_mask(const DecoderLayer& layer, const at::Tensor& x_BTD,
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

at::Tensor Model::Implementation::run_moe_layers(at::Tensor h_BTD, const ForwardContext& context,
                                                 ModelOutput& output) const {
  std::vector<TokenRange> ranges;
  at::Tensor count_N;
  if (output.plan) {
    ranges = flattened_ranges(context.input->segments);
  } else if (output.token_router) {
    ranges = single_token_ranges(context.input->tokens_BT.numel());
    count_N = count_per_token(*context.input);
  }
  std::optional<InferenceExperts> inference;
  if (runs_listed(h_BTD)) inference = start_inference_experts(*context.input, output);
  for (int64_t moe_layer = 0; moe_layer < config.num_moe_layers; ++moe_layer) {
    const int64_t index = config.num_dense_layers + moe_layer;
    const DecoderLayer& layer = layers[static_cast<size_t>(index)];
    h_BTD = attend(index, h_BTD, context);
    const at::Tensor normed = rms_norm(h_BTD, layer.ffn_norm, config.norm_eps);
    const at::Tensor mask = output.plan ? output.plan->mask_QLE.select(1, moe_layer)
                                        : token_routing_mask(layer, normed, count_N, *output.token_router);
    const at::Tensor x_ND = normed.flatten(0, 1);
    const at::Tensor routed = inference
                                  ? run_listed_experts(moe_layer, x_ND, mask, ranges, *inference)
                                  : routed_experts(x_ND, layer.routed_experts, mask.to(x_ND.scalar_type()),
                                                   ranges, config.routing.mask_gradient);
    h_BTD = h_BTD + add_shared_expert(layer, normed, routed.view_as(normed));
  }
  return h_BTD;
}

Model::Model(const ModelConfig& config, at::Device device, at::ScalarType dtype, ExpertPlacement placement)
    : implementation_(std::make_unique<Implementation>(config, device, dtype, placement)) {}
Model::~Model() = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;

void Model::initialize(uint64_t seed) {
  initialize_parameters(implementation_->parameters, implementation_->config, seed);
}

void Model::set_expert_provider(std::shared_ptr<ExpertProvider> provider) {
  implementation_->provider = std::move(provider);
}

ModelOutput Model::forward(const ModelInput& input, const SelectionControls& controls) const {
  const Implementation& self = *implementation_;
  self.check_input(input);
  SMOE_ASSERT(self.placement == ExpertPlacement::kParameters || runs_listed(self.token_embedding_VD));
  const ForwardContext context = self.make_context(input);
  at::Tensor h_BTD = self.run_dense_layers(self.embed(input), context);
  ModelOutput output;
  if (self.config.architecture == Architecture::kSteppedMoe) {
    output.plan = self.route_segments(h_BTD, input, controls);
  } else if (self.config.architecture == Architecture::kVanillaMoe) {
    output.token_router.emplace();
  }
  h_BTD = self.run_moe_layers(h_BTD, context, output);
  output.hidden_BTD = rms_norm(h_BTD, self.final_norm, self.config.norm_eps);
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
