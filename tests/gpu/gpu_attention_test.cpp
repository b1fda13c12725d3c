#include <torch/csrc/autograd/autograd.h>

#include "gpu_test_support.h"
#include "model/packed_attention.h"
#include "wait_counter.h"

namespace smoe {
namespace {

using testing::kGpu;
using testing::relative_error;

const DocumentLengths kLengths = {{5, 1, 58}, {64}, {31, 33}};

struct Heads {
  at::Tensor q, k, v;
};

Heads random_heads(at::ScalarType dtype, at::Device device) {
  at::manual_seed(9);
  const auto make = [&](int64_t heads) {
    return at::randn({3, 64, heads, 32}).to(device, dtype).set_requires_grad(true);
  };
  return {make(4), make(2), make(2)};
}

TEST(PackedAttention, ReferenceEqualsAMaskOfDocuments) {
  const Heads heads = random_heads(at::kDouble, at::kCPU);
  const at::Tensor mixed =
      packed_attention_reference(heads.q, heads.k, heads.v, pack_documents(kLengths, at::kCPU));
  at::Tensor allowed = at::zeros({3, 1, 64, 64}, at::kBool);
  for (size_t row = 0; row < kLengths.size(); ++row) {
    int64_t begin = 0;
    for (const int64_t length : kLengths[row]) {
      allowed[static_cast<int64_t>(row)][0].narrow(0, begin, length).narrow(1, begin, length).fill_(true);
      begin += length;
    }
  }
  const at::Tensor expected = at::scaled_dot_product_attention(
      heads.q.transpose(1, 2), heads.k.transpose(1, 2).repeat_interleave(2, 1),
      heads.v.transpose(1, 2).repeat_interleave(2, 1),
      allowed.logical_and(at::ones({64, 64}, at::kBool).tril()));
  EXPECT_LT(relative_error(mixed, expected.transpose(1, 2)), 1e-12);
}

TEST(PackedAttention, OffsetsCountTheTokensOfAllRows) {
  const PackedDocuments documents = pack_documents(kLengths, at::kCPU);
  EXPECT_TRUE(at::equal(documents.offsets, at::tensor({0, 5, 6, 64, 128, 159, 192}, at::kInt)));
  EXPECT_EQ(documents.max_length, 64);
}

TEST(PackedAttention, GpuEqualsTheReferenceForwardAndBackward) {
  SMOE_NEEDS_GPU();
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    SCOPED_TRACE(at::toString(dtype));
    const double tolerance = dtype == at::kFloat ? 1e-4 : 2e-2;
    const Heads heads = random_heads(dtype, kGpu);
    const Heads exact = random_heads(at::kDouble, at::kCPU);
    const at::Tensor mixed = packed_attention(heads.q, heads.k, heads.v, pack_documents(kLengths, kGpu));
    const at::Tensor expected =
        packed_attention_reference(exact.q, exact.k, exact.v, pack_documents(kLengths, at::kCPU));
    EXPECT_LT(relative_error(mixed, expected), tolerance);
    const at::Tensor direction = at::randn(expected.sizes(), at::kDouble);
    (mixed * direction.to(kGpu, dtype)).sum().backward();
    (expected * direction).sum().backward();
    EXPECT_LT(relative_error(heads.q.grad(), exact.q.grad()), tolerance);
    EXPECT_LT(relative_error(heads.k.grad(), exact.k.grad()), tolerance);
    EXPECT_LT(relative_error(heads.v.grad(), exact.v.grad()), tolerance);
  }
}

TEST(PackedAttention, DoesNotMakeTheHostWait) {
  SMOE_NEEDS_GPU();
  const Heads heads = random_heads(at::kBFloat16, kGpu);
  packed_attention(heads.q, heads.k, heads.v, pack_documents(kLengths, kGpu)).sum().backward();  // warm
  const testing::WaitCounter counter;
  packed_attention(heads.q, heads.k, heads.v, pack_documents(kLengths, kGpu)).sum().backward();
  EXPECT_EQ(counter.num_waits(), 0);
}

}  // namespace
}  // namespace smoe
