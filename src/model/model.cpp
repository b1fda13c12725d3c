#include "smoe/model/model.h"

#include <utility>

#include "model_implementation.h"
#include "packed_attention.h"
#include "smoe/core/error.h"
#include "smoe/model/initialization.h"
#include "smoe/model/token_router.h"
#include "smoe/routing/host_to_device.h"
#include "token_embedding.h"

namespace smoe {
namespace {

using torch::autograd::variable_list;

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

void add_router_losses(const TokenRouting& routing, TokenRouterLosses& losses) {
  const at::Tensor probability_sum_1E = routing.probability_sum_E.unsqueeze(0);
  const at::Tensor count_1E = routing.selected_count_E.unsqueeze(0);
  if (!losses.probability_sum_LE.defined()) {
    losses.probability_sum_LE = probability_sum_1E;
    losses.selected_count_LE = count_1E;
    losses.z_loss_sum = routing.z_loss_sum;
    return;
  }
  losses.probability_sum_LE = at::cat({losses.probability_sum_LE, probability_sum_1E});
  losses.selected_count_LE = at::cat({losses.selected_count_LE, count_1E});
  losses.z_loss_sum = losses.z_loss_sum + routing.z_loss_sum;
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

bool dense_states_are_shared(const ModelConfig& config) {
  if (config.architecture == Architecture::kDense) return false;
  return config.architecture == Architecture::kVanillaMoe || config.size_embedding != SizeEmbedding::kInput;
}

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
    add_mask_generator(factory);
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

void Model::Implementation::add_mask_generator(ParameterFactory& factory) {
  const MaskHeadConfig& head = config.routing.mask_head;
  const bool is_mlp = head.kind == MaskHeadKind::kMlp;
  mask_generator.norm = factory.add("mask_generator.norm.weight", {config.dim}, ParameterKind::kNorm);
  if (is_mlp) {
    mask_generator.hidden_HD =
        factory.add("mask_generator.hidden.weight", {head.hidden_dim, config.dim}, ParameterKind::kRouter);
  }
  const int64_t features = is_mlp ? head.hidden_dim : config.dim;
  mask_generator.proj =
      factory.add("mask_generator.proj.weight", {config.num_moe_layers * config.num_experts, features},
                  ParameterKind::kRouter);
  if (head.normalize_layers) {
    mask_generator.layer_gain_L =
        factory.add("mask_generator.layer_gain.weight", {config.num_moe_layers}, ParameterKind::kNorm);
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
  SMOE_ASSERT(!input.dense_states_BTD.defined() ||
              (input.cache == nullptr && input.shared_prefix == nullptr));
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
  return size_embedding.index_select(0, copy_to_device(input.budget_of_row, device));
}

LayerContext Model::Implementation::make_context(const ModelInput& input) const {
  LayerContext context{{}, {}, input.cache, input.cache ? input.cache->prefix() : input.shared_prefix};
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
  if (!input.document_lengths.empty()) {
    SMOE_ASSERT(!allowed.defined() && input.cache == nullptr && input.shared_prefix == nullptr);
    context.documents =
        std::make_shared<const PackedDocuments>(pack_documents(input.document_lengths, device));
  }
  // Made once: attention would make it anew, and training keep it, in every layer.
  if (allowed.defined()) context.attention_mask = additive_mask(allowed, dtype);
  // At least float32: rotations by hundreds of radians have no exact form in bfloat16.
  context.rotary =
      rotary_table(positions, config.head_dim, config.rope_theta, at::promote_types(dtype, at::kFloat));
  return context;
}

at::Tensor Model::Implementation::embed(const ModelInput& input) const {
  const at::Tensor h_BTD = embed_tokens(token_embedding_VD, input.tokens_BT);
  const bool at_input = size_embedding.defined() && config.size_embedding == SizeEmbedding::kInput;
  return at_input ? h_BTD + size_embedding_BD(input).unsqueeze(1) : h_BTD;
}

LayerRun Model::Implementation::layer_run(int64_t index, const LayerContext& context) const {
  return {config, layers[static_cast<size_t>(index)], index, context};
}

// The hidden state that `body` gives first; what it gives besides are the sums of a token router.
at::Tensor Model::Implementation::run_layer(const LayerRun& run, const RecomputedBody& body,
                                            const variable_list& inputs, TokenRouterLosses* losses) const {
  const bool recompute = checkpointing.covers(run.index, config.num_dense_layers);
  const variable_list outputs =
      recompute ? recompute_in_backward(body, inputs, layer_parameters(run.layer)) : body(inputs);
  if (losses != nullptr) add_router_losses({{}, outputs[1], outputs[3], {}, outputs[2]}, *losses);
  return outputs[0];
}

at::Tensor Model::Implementation::run_dense_layers(at::Tensor h_BTD, const LayerContext& context) const {
  for (int64_t index = 0; index < config.num_dense_layers; ++index) {
    const LayerRun run = layer_run(index, context);
    const auto body = [run](const variable_list& inputs) {
      return variable_list{run_dense_layer(run, inputs[0])};
    };
    h_BTD = run_layer(run, body, {h_BTD}, nullptr);
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
  const at::Tensor state_QD = selector_states(h_BTD, routed, input.cache, input.shared_prefix);
  const at::Tensor logits_QLE = mask_logits(state_QD, mask_generator, routed, router_offset_BD, config);
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

// For the grouped experts of a GPU or of bfloat16, where every segment makes a choice of known size: those
// that carry on an earlier choice have to count it. Null elsewhere.
SegmentLayoutPointer Model::Implementation::layout_for(const at::Tensor& h_BTD,
                                                       const std::vector<TokenRange>& ranges,
                                                       const at::Tensor& counts) const {
  const bool is_grouped = !h_BTD.is_cpu() || h_BTD.scalar_type() == at::kBFloat16;
  const bool are_known = counts.defined() && counts.numel() == std::ssize(ranges);
  if (!is_grouped || !are_known || config.routing.mask_gradient != MaskGradient::kSelected) return {};
  return c10::make_intrusive<SegmentLayout>(ranges, counts, device,
                                            default_chunk_rows(config.dim, h_BTD.scalar_type()));
}

at::Tensor Model::Implementation::run_moe_layers(at::Tensor h_BTD, const ModelInput& input,
                                                 const LayerContext& context, ModelOutput& output) const {
  const bool plans = output.plan.has_value();
  // Shared, since a recomputation outlives this call.
  const auto ranges = std::make_shared<const std::vector<TokenRange>>(
      plans ? flattened_ranges(input.segments) : single_token_ranges(input.tokens_BT.numel()));
  const at::Tensor count_N = plans ? at::Tensor() : count_per_token(input);
  if (!plans) output.token_router->num_tokens = input.tokens_BT.numel();
  const SegmentLayoutPointer layout = layout_for(h_BTD, *ranges, plans ? output.plan->count_Q : count_N);
  std::optional<InferenceExperts> inference;
  if (runs_listed(h_BTD)) inference = start_inference_experts(input, output);
  for (int64_t moe_layer = 0; moe_layer < config.num_moe_layers; ++moe_layer) {
    const LayerRun run = layer_run(config.num_dense_layers + moe_layer, context);
    RoutedExpertsCall experts;
    if (inference) {
      experts = [&, moe_layer](const at::Tensor& x_ND, const at::Tensor& mask, const at::Tensor&) {
        return run_listed_experts(moe_layer, x_ND, mask, *ranges, *inference);
      };
    } else {
      experts = [run, ranges, layout](const at::Tensor& x_ND, const at::Tensor& mask,
                                      const at::Tensor& selected) {
        // At least float32: a routing weight in bfloat16 has two digits.
        const at::Tensor exact = mask.to(at::promote_types(x_ND.scalar_type(), at::kFloat));
        const ExpertWeights& weights = run.layer.routed_experts;
        if (!layout) return routed_experts(x_ND, weights, exact, *ranges, run.config.routing.mask_gradient);
        return routed_experts_grouped(x_ND, weights, exact,
                                      selected.defined() ? selected : mask.detach().ne(0), layout);
      };
    }
    if (plans) {
      const auto body = [run, experts](const variable_list& inputs) {
        return variable_list{run_planned_layer(run, inputs[0], inputs[1], experts)};
      };
      h_BTD = run_layer(run, body, {h_BTD, output.plan->mask_QLE.select(1, moe_layer)}, nullptr);
    } else {
      // The second run repeats the choice of the first, whatever its roundings.
      const auto body = [run, experts, count_N,
                         chosen_NE = std::make_shared<at::Tensor>()](const variable_list& inputs) {
        const auto [layer_BTD, routing] = run_self_routed_layer(run, inputs[0], count_N, *chosen_NE, experts);
        *chosen_NE = routing.selected_NE;
        return variable_list{layer_BTD, routing.probability_sum_E, routing.z_loss_sum,
                             routing.selected_count_E};
      };
      h_BTD = run_layer(run, body, {h_BTD}, &*output.token_router);
    }
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

void Model::set_activation_checkpointing(const ActivationCheckpointing& checkpointing) {
  implementation_->checkpointing = checkpointing;
}

void Model::set_expert_provider(std::shared_ptr<ExpertProvider> provider) {
  implementation_->provider = std::move(provider);
}

ModelOutput Model::forward(const ModelInput& input, const SelectionControls& controls) const {
  const Implementation& self = *implementation_;
  self.check_input(input);
  if (self.runs_single_token(input)) return self.forward_single_token(input, controls);
  SMOE_ASSERT(self.placement == ExpertPlacement::kParameters || runs_listed(self.token_embedding_VD));
  const LayerContext context = self.make_context(input);
  at::Tensor h_BTD = input.dense_states_BTD;
  if (!h_BTD.defined()) h_BTD = self.run_dense_layers(self.embed(input), context);
  if (input.cache != nullptr) input.cache->append_states(h_BTD);
  ModelOutput output;
  if (self.config.architecture == Architecture::kSteppedMoe) {
    output.plan = self.route_segments(h_BTD, input, controls);
  } else if (self.config.architecture == Architecture::kVanillaMoe) {
    output.token_router.emplace();
  }
  if (self.config.architecture != Architecture::kDense) {
    h_BTD = self.run_moe_layers(h_BTD, input, context, output);
  }
  output.hidden_BTD = rms_norm(h_BTD, self.final_norm, self.config.norm_eps);
  return output;
}

at::Tensor Model::dense_states(const ModelInput& input) const {
  const Implementation& self = *implementation_;
  self.check_input(input);
  return self.run_dense_layers(self.embed(input), self.make_context(input));
}

void Model::encode_weights(ExpertEncoding encoding) {
  Implementation& self = *implementation_;
  SMOE_ASSERT(self.device.is_cpu());
  for (NamedParameter& parameter : self.parameters) {
    const bool is_head = parameter.tensor.is_same(output_weight());
    if (parameter.kind == ParameterKind::kMatrix || is_head) {
      self.encoded.encode(parameter.tensor, encoding);
    }
  }
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
