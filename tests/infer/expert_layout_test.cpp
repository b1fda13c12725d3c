#include "smoe/infer/expert_layout.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "smoe/core/error.h"

namespace smoe {
namespace {

struct Expert {
  at::Tensor gate = at::randn({6, 10});
  at::Tensor up = at::randn({6, 10});
  at::Tensor down = at::randn({10, 6});

  std::vector<std::byte> encoded(const ExpertLayout& layout) const {
    std::vector<std::byte> block(static_cast<size_t>(layout.block_bytes));
    encode_expert(layout,
                  {gate.const_data_ptr<float>(), up.const_data_ptr<float>(), down.const_data_ptr<float>()},
                  block.data());
    return block;
  }
};

at::Tensor values_of(const void* data, at::ScalarType type, at::IntArrayRef shape) {
  return at::from_blob(const_cast<void*>(data), shape, type).clone();
}

TEST(ExpertLayout, KeepsFloatsBitForBit) {
  const Expert expert;
  const ExpertLayout layout = make_expert_layout(ExpertEncoding::kFloat32, {10, 6});
  const auto block = expert.encoded(layout);
  const ExpertView view = view_expert(layout, block.data());
  EXPECT_TRUE(at::equal(values_of(view.gate_hD, at::kFloat, {6, 10}), expert.gate));
  EXPECT_TRUE(at::equal(values_of(view.up_hD, at::kFloat, {6, 10}), expert.up));
  EXPECT_TRUE(at::equal(values_of(view.down_Dh, at::kFloat, {10, 6}), expert.down));
}

TEST(ExpertLayout, RoundsToBfloat16AsTensorsDo) {
  const Expert expert;
  const ExpertLayout layout = make_expert_layout(ExpertEncoding::kBfloat16, {10, 6});
  const auto block = expert.encoded(layout);
  const ExpertView view = view_expert(layout, block.data());
  EXPECT_TRUE(at::equal(values_of(view.down_Dh, at::kBFloat16, {10, 6}), expert.down.to(at::kBFloat16)));
}

TEST(ExpertLayout, QuantisesRowsWithinHalfAStep) {
  Expert expert;
  expert.up[2].zero_();
  const ExpertLayout layout = make_expert_layout(ExpertEncoding::kInt8, {10, 6});
  const auto block = expert.encoded(layout);
  const ExpertView view = view_expert(layout, block.data());
  const at::Tensor scale = values_of(view.up_scale_h, at::kFloat, {6, 1});
  const at::Tensor restored = values_of(view.up_hD, at::kChar, {6, 10}).to(at::kFloat) * scale;
  EXPECT_TRUE(((restored - expert.up).abs() <= 0.5001 * scale).all().item<bool>());
  EXPECT_TRUE(at::allclose(scale.squeeze(1), expert.up.abs().amax(1) / 127.0, 1e-6));
  EXPECT_EQ(restored[2].abs().max().item<float>(), 0.0F);
}

TEST(ExpertLayout, AlignsBlocksAndMatrices) {
  for (const auto encoding : {ExpertEncoding::kFloat32, ExpertEncoding::kBfloat16, ExpertEncoding::kInt8}) {
    const ExpertLayout layout = make_expert_layout(encoding, {37, 11});
    EXPECT_EQ(layout.block_bytes % 4096, 0);
    for (const int64_t offset :
         {layout.gate_offset, layout.up_offset, layout.down_offset, layout.gate_scale_offset,
          layout.up_scale_offset, layout.down_scale_offset}) {
      EXPECT_EQ(offset % 64, 0);
    }
  }
}

TEST(ExpertLayout, RefusesWeightsThatAreNotFinite) {
  Expert expert;
  expert.gate[1][1] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THROW(expert.encoded(make_expert_layout(ExpertEncoding::kInt8, {10, 6})), NumericError);
}

}  // namespace
}  // namespace smoe
