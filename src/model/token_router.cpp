#include "smoe/model/token_router.h"

#include "smoe/model/layers.h"
#include "smoe/routing/soft_top_k.h"

namespace smoe {

TokenRouting route_tokens(const at::Tensor& x_ND, const at::Tensor& router_ED, const at::Tensor& count_N,
                          const TokenRouterConfig& config, const at::Tensor& selected_NE) {
  // float32 or wider: bfloat16 logits tie at the cut in one row out of ten.
  const at::ScalarType dtype = at::promote_types(x_ND.scalar_type(), at::kFloat);
  const at::Tensor logits_NE = at::linear(x_ND.to(dtype), router_ED.to(dtype));
  const at::Tensor probability_NE = at::softmax(logits_NE, -1);
  TokenRouting routing;
  routing.selected_NE =
      selected_NE.defined() ? selected_NE : hard_top_k(probability_NE.detach(), count_N).to(at::kBool);
  at::Tensor weight_NE = probability_NE * routing.selected_NE.to(dtype);
  if (config.normalize_weights) {
    weight_NE = weight_NE / weight_NE.sum(-1, /*keepdim=*/true);
  }
  routing.weight_NE = weight_NE;
  routing.probability_sum_E = probability_NE.sum(0);
  routing.selected_count_E = routing.selected_NE.sum(0);
  routing.z_loss_sum = at::logsumexp(logits_NE, {-1}).square().sum();
  return routing;
}

}  // namespace smoe
