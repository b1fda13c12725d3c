#include "smoe/model/mask_generator.h"

#include "smoe/model/layers.h"
#include "smoe/routing/host_to_device.h"

namespace smoe {

at::Tensor mask_logits(const at::Tensor& z_ND, const MaskGeneratorWeights& weights,
                       const SegmentMap& segments, const at::Tensor& router_offset_BD,
                       const ModelConfig& config) {
  // float32 whatever the model's dtype: in bfloat16 many rows tie exactly at the k-th logit.
  const at::ScalarType dtype = at::kFloat;
  at::Tensor z_QD =
      z_ND.index_select(0, copy_to_device(segments.selector_indices(), z_ND.device())).to(dtype);
  z_QD = scale_gradient(z_QD, config.routing.backbone_gradient_scale);
  if (config.routing.mask_source == MaskSource::kInputIndependent) {
    z_QD = at::ones_like(z_QD);
  }
  if (router_offset_BD.defined()) {
    z_QD = z_QD +
           router_offset_BD.index_select(0, copy_to_device(segments.segment_rows(), z_ND.device())).to(dtype);
  }
  const at::Tensor normed_QD = rms_norm(z_QD, weights.norm.to(dtype), config.norm_eps);
  return at::linear(normed_QD, weights.proj.to(dtype))
      .view({segments.num_segments(), config.num_moe_layers, config.num_experts});
}

}  // namespace smoe
