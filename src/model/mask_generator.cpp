#include "smoe/model/mask_generator.h"

#include <algorithm>

#include "smoe/core/error.h"
#include "smoe/model/layers.h"
#include "smoe/routing/host_to_device.h"

namespace smoe {
namespace {

// Where the states of a batch's tokens lie in a list: those of a prefix that all rows share, then `stride`
// for each row.
struct StateList {
  at::Tensor states_ND;
  int64_t prefix_tokens = 0;
  int64_t stride = 0;
  std::vector<int64_t> tokens_before;  // token 0 of the batch, by row

  int64_t place(int64_t row, int64_t token) const {
    const int64_t position = tokens_before[static_cast<size_t>(row)] + token;
    SMOE_ASSERT(position >= 0);
    return position < prefix_tokens ? position : row * stride + position;
  }
};

StateList list_states(const at::Tensor& z_BTD, const KvCache* cache, const KvCache* shared_prefix) {
  StateList list;
  const KvCache* prefix = cache != nullptr ? cache->prefix() : shared_prefix;
  list.prefix_tokens = prefix != nullptr ? prefix->lengths().front() : 0;
  const at::Tensor own_BTD = cache != nullptr ? cache->states() : z_BTD;
  list.stride = own_BTD.size(1);
  list.states_ND = own_BTD.flatten(0, 1);
  if (prefix != nullptr) {
    list.states_ND = at::cat({prefix->states()[0].narrow(0, 0, list.prefix_tokens), list.states_ND});
  }
  list.tokens_before = cache != nullptr
                           ? cache->lengths()
                           : std::vector<int64_t>(static_cast<size_t>(z_BTD.size(0)), list.prefix_tokens);
  return list;
}

bool reaches_back(const SegmentMap& segments) {
  return std::ranges::any_of(segments.segments, [](const Segment& segment) {
    return segment.selector - segment.selector_tokens + 1 < 0;
  });
}

// Windows shorter than the longest are filled up with states of weight 0.
at::Tensor window_means(const StateList& list, const SegmentMap& segments, int64_t longest) {
  std::vector<int64_t> places;
  at::Tensor weight_QW = at::zeros({segments.num_segments(), longest}, at::kFloat);
  auto weight = weight_QW.accessor<float, 2>();
  for (int64_t q = 0; q < segments.num_segments(); ++q) {
    const Segment& segment = segments.segments[static_cast<size_t>(q)];
    for (int64_t i = 0; i < longest; ++i) {
      const int64_t back = std::min(i, segment.selector_tokens - 1);
      places.push_back(list.place(segment.row, segment.selector - back));
      if (i < segment.selector_tokens) weight[q][i] = 1.0F / static_cast<float>(segment.selector_tokens);
    }
  }
  const at::Device device = list.states_ND.device();
  const at::Tensor states_QWD = list.states_ND.index_select(0, copy_to_device(places, device))
                                    .view({segments.num_segments(), longest, -1});
  return (states_QWD.to(at::kFloat) * copy_to_device(weight_QW, device).unsqueeze(2)).sum(1);
}

}  // namespace

at::Tensor selector_states(const at::Tensor& z_BTD, const SegmentMap& segments, const KvCache* cache,
                           const KvCache* shared_prefix) {
  const bool from_history = reaches_back(segments);
  SMOE_ASSERT(!from_history || cache != nullptr || shared_prefix != nullptr);
  const StateList list =
      from_history ? list_states(z_BTD, cache, shared_prefix) : list_states(z_BTD, nullptr, nullptr);
  int64_t longest = 1;
  for (const Segment& segment : segments.segments) longest = std::max(longest, segment.selector_tokens);
  if (longest > 1) return window_means(list, segments, longest);
  std::vector<int64_t> places;
  for (const Segment& segment : segments.segments)
    places.push_back(list.place(segment.row, segment.selector));
  return list.states_ND.index_select(0, copy_to_device(places, z_BTD.device()));
}

at::Tensor mask_logits(const at::Tensor& state_QD, const MaskGeneratorWeights& weights,
                       const SegmentMap& segments, const at::Tensor& router_offset_BD,
                       const ModelConfig& config) {
  // float32 whatever the model's dtype: in bfloat16 many rows tie exactly at the k-th logit.
  const at::ScalarType dtype = at::kFloat;
  at::Tensor z_QD = scale_gradient(state_QD.to(dtype), config.routing.backbone_gradient_scale);
  if (config.routing.mask_source == MaskSource::kInputIndependent) {
    z_QD = at::ones_like(z_QD);
  }
  if (router_offset_BD.defined()) {
    z_QD = z_QD +
           router_offset_BD.index_select(0, copy_to_device(segments.segment_rows(), z_QD.device())).to(dtype);
  }
  at::Tensor features = rms_norm(z_QD, weights.norm.to(dtype), config.norm_eps);
  if (weights.hidden_HD.defined()) features = at::silu(at::linear(features, weights.hidden_HD.to(dtype)));
  const at::Tensor logits_QLE =
      at::linear(features, weights.proj.to(dtype))
          .view({segments.num_segments(), config.num_moe_layers, config.num_experts});
  if (!weights.layer_gain_L.defined()) return logits_QLE;
  const at::Tensor ones_E = at::ones({config.num_experts}, logits_QLE.options());
  return rms_norm(logits_QLE, ones_E, config.norm_eps) * weights.layer_gain_L.to(dtype).unsqueeze(1);
}

}  // namespace smoe
