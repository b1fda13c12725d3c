// The forward of a model without gradients on the CPU: experts that come from a provider, and the path of a
// single token.
#include <c10/core/InferenceMode.h>

#include <utility>

#include "model_implementation.h"
#include "smoe/core/error.h"
#include "smoe/model/routed_experts_listed.h"
#include "smoe/model/token_router.h"

namespace smoe {

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

bool Model::Implementation::runs_single_token(const ModelInput& input) const {
  if (input.cache == nullptr || input.tokens_BT.numel() != 1 || !runs_listed(token_embedding_VD))
    return false;
  const bool fits = !provider || config.budgets.empty() ||
                    provider->most_experts() >= config.budgets.back().experts_per_layer;
  return fits && input.cache->prefix() == nullptr && input.cache->lengths().front() > 0;
}

TokenExperts Model::Implementation::token_experts(int64_t moe_layer, const at::Tensor& mask_1E,
                                                  const InferenceExperts& inference) const {
  const auto& planned = inference.demand.experts_of_layer;
  const std::vector<int64_t> selected = planned.empty() ? selected_experts(mask_1E.unsqueeze(1)).front()
                                                        : planned[static_cast<size_t>(moe_layer)];
  TokenExperts experts;
  if (inference.delivery) experts.views = wait_for_experts(moe_layer, selected, mask_1E, inference);
  const DecoderLayer& layer = layers[static_cast<size_t>(config.num_dense_layers + moe_layer)];
  for (const int64_t expert : selected) {
    if (!inference.delivery) experts.views.push_back(encoded.expert(layer.routed_experts, expert));
    experts.weights.push_back(mask_1E.const_data_ptr<float>()[expert]);
  }
  return experts;
}

ModelOutput Model::Implementation::forward_single_token(const ModelInput& input,
                                                        const SelectionControls& controls) const {
  ModelOutput output;
  InferenceExperts inference;
  const bool stepped = config.architecture == Architecture::kSteppedMoe;
  const ChooseExperts choose = [&](int64_t moe_layer, const std::vector<float>& normed_D) {
    // The calling thread is not the one that entered the forward.
    const c10::InferenceMode no_gradients;
    if (stepped) {
      return token_experts(moe_layer, output.plan->mask_QLE.select(1, moe_layer).to(at::kFloat).contiguous(),
                           inference);
    }
    const at::Tensor x_1D = at::tensor(at::ArrayRef<float>(normed_D)).unsqueeze(0);
    const DecoderLayer& layer = layers[static_cast<size_t>(config.num_dense_layers + moe_layer)];
    const TokenRouting routing =
        route_tokens(x_1D, layer.router_ED, count_per_token(input), config.token_router);
    return token_experts(moe_layer, routing.weight_NE.to(at::kFloat).contiguous(), inference);
  };
  const at::Tensor h_D = embed(input).flatten().contiguous();
  const at::Tensor& head_VD = output_VD.defined() ? output_VD : token_embedding_VD;
  SingleTokenPass pass({config, layers, encoded, final_norm, head_VD}, *input.cache, h_D, choose);
  const auto values_of = [](const std::vector<float>& values) {
    return at::tensor(at::ArrayRef<float>(values)).unsqueeze(0);
  };
  int64_t begin = 0;
  if (stepped) {
    // A token that chooses by its own state needs the dense layers first; all others know their experts
    // already.
    const Segment& segment = input.segments.segments.front();
    if (segment.selector != kCarriedSelector && segment.selector >= 0) {
      begin = config.num_dense_layers;
      pass.run(0, begin);
      input.cache->append_states(values_of(pass.hidden()).unsqueeze(0));
    }
    output.plan = route_segments(values_of(pass.hidden()).unsqueeze(0), input, controls);
  }
  if (config.architecture != Architecture::kDense) inference = start_inference_experts(input, output);
  if (input.cache->keeps_states() && begin == 0) {
    begin = config.num_dense_layers;
    pass.run(0, begin);
    input.cache->append_states(values_of(pass.hidden()).unsqueeze(0));
  }
  pass.run(begin, config.num_layers());
  output.hidden_BTD = values_of(pass.normed()).unsqueeze(0);
  output.logits_BV = values_of(pass.logits());
  return output;
}

}  // namespace smoe
