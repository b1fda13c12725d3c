// The path for GPUs is made of ATen operators, so its arithmetic is checked on the CPU; the last tests run on
// a device where there is one.
#include "model/routed_experts_grouped.h"

#include <gtest/gtest.h>

#include "host_read_recorder.h"
#include "routed_experts_cases.h"

namespace smoe {
namespace {

using test::Case;
using test::make_case;
using test::relative_error;

constexpr int64_t kManyRows = 1 << 20;

SegmentLayout layout_of(const Case& c, int64_t max_chunk_rows) {
  return {c.segments, c.mask.detach().ne(0).sum(1), at::kCPU, max_chunk_rows};
}

SegmentLayoutPointer shared_layout_of(const Case& c, at::Device device = at::kCPU) {
  return c10::make_intrusive<SegmentLayout>(c.segments, c.mask.detach().ne(0).sum(1).cpu(), device,
                                            kManyRows);
}

// `expected` is computed by the reference in the type of `exact`, the grouped path runs in the type of `c`.
void expect_grouped_equals_dense(const Case& c, const Case& exact, double tolerance, int64_t max_chunk_rows) {
  at::NoGradGuard no_grad;
  const SegmentLayout layout = layout_of(c, max_chunk_rows);
  const at::Tensor selected = c.mask.detach().ne(0);
  const GroupedSelection selection{c.mask, selected, layout};
  const at::Tensor y_gradient = at::randn_like(exact.x);
  const at::Tensor y = routed_experts_grouped_forward(c.x, c.weights, selection);
  const auto actual =
      routed_experts_grouped_backward(y_gradient.to(c.x.scalar_type()), c.x, c.weights, selection, {});
  at::AutoGradMode with_grad(true);
  const at::Tensor reference =
      routed_experts_masked_dense(exact.x, exact.weights, exact.mask, exact.segments);
  const auto expected = test::gradients(reference, exact, y_gradient);
  EXPECT_LT(relative_error(y, reference), tolerance) << c.description;
  EXPECT_LT(relative_error(actual.x_ND, expected.x), tolerance) << c.description;
  EXPECT_LT(relative_error(actual.weights.gate_EhD, expected.gate), tolerance) << c.description;
  EXPECT_LT(relative_error(actual.weights.up_EhD, expected.up), tolerance) << c.description;
  EXPECT_LT(relative_error(actual.weights.down_EDh, expected.down), tolerance) << c.description;
  EXPECT_LT(relative_error(actual.mask_QE, expected.mask * selected), tolerance) << c.description;
}

TEST(RoutedExpertsGrouped, EqualsDenseOnRandomShapesInFloat64) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const Case c = test::random_case(seed, at::kDouble);
    expect_grouped_equals_dense(c, c, 1e-12, kManyRows);
  }
}

TEST(RoutedExpertsGrouped, EqualsDenseHoweverTheRowsAreDivided) {
  for (uint64_t seed = 0; seed < 15; ++seed) {
    const Case c = test::random_case(seed, at::kDouble);
    for (const int64_t max_chunk_rows : {1, 50, 300})
      expect_grouped_equals_dense(c, c, 1e-12, max_chunk_rows);
  }
}

TEST(SegmentLayout, DividesAtSegmentsAndLosesNoRow) {
  const std::vector<TokenRange> ranges = {{0, 4}, {4, 4}, {4, 9}, {9, 10}, {10, 30}};
  const at::Tensor count_Q = at::tensor({2, 7, 1, 0, 3}, at::kLong);
  const SegmentLayout layout(ranges, count_Q, at::kCPU, 13);
  ASSERT_EQ(layout.chunks().size(), 2);
  EXPECT_EQ(layout.chunks()[0].num_segments, 4);
  EXPECT_EQ(layout.chunks()[0].num_tokens, 10);
  EXPECT_EQ(layout.chunks()[0].num_pairs, 3);  // none of the segment without tokens
  EXPECT_EQ(layout.chunks()[0].num_rows, 13);
  EXPECT_EQ(layout.chunks()[1].first_token, 10);
  EXPECT_EQ(layout.chunks()[1].num_rows, 60);  // a single segment may have more
  EXPECT_TRUE(layout.has_empty_segments());
}

struct LowPrecisionCase {
  Case low;
  Case exact;  // the same numbers in float32
};

LowPrecisionCase low_precision_case() {
  LowPrecisionCase both;
  both.exact = make_case(
      {.num_tokens = 96, .dim = 32, .num_experts = 6, .expert_dim = 16, .k = 2, .segment_length = 16}, 3,
      at::kFloat);
  both.exact.mask = test::leaf(both.exact.mask.detach().index_fill(1, at::tensor({1, 5}, at::kLong), 0));
  both.low = both.exact;
  const auto round = [](at::Tensor& low, at::Tensor& exact) {
    low = test::leaf(exact.detach().to(at::kBFloat16));
    exact = test::leaf(low.detach().to(at::kFloat));
  };
  round(both.low.x, both.exact.x);
  round(both.low.weights.gate_EhD, both.exact.weights.gate_EhD);
  round(both.low.weights.up_EhD, both.exact.weights.up_EhD);
  round(both.low.weights.down_EDh, both.exact.weights.down_EDh);
  return both;
}

TEST(RoutedExpertsGrouped, Bfloat16StaysCloseToFloat32IncludingExpertsWithoutTokens) {
  const LowPrecisionCase both = low_precision_case();
  for (const int64_t max_chunk_rows : {kManyRows, int64_t{60}}) {
    expect_grouped_equals_dense(both.low, both.exact, 2e-2, max_chunk_rows);
  }
}

// The sum over the experts of a token is rounded once, not once an expert.
TEST(RoutedExpertsGrouped, AddsTheExpertsOfATokenInFloat32) {
  const int64_t num_experts = 64, dim = 8;
  const auto options = at::TensorOptions().dtype(at::kBFloat16);
  const at::Tensor x = at::ones({1, dim}, options);
  const ExpertWeights weights{at::full({num_experts, 8, dim}, 1.0, options),
                              at::full({num_experts, 8, dim}, 1.0, options),
                              at::full({num_experts, dim, 8}, 1.0, options)};
  const at::Tensor mask = at::ones({1, num_experts});
  const at::Tensor all = routed_experts_sparse(x, weights, mask, {{0, 1}});
  const at::Tensor one =
      routed_experts_sparse(x, weights, (at::arange(num_experts) < 1).to(at::kFloat).unsqueeze(0), {{0, 1}});
  EXPECT_TRUE(at::equal(all, (one.to(at::kFloat) * static_cast<double>(num_experts)).to(at::kBFloat16)));
}

TEST(RoutedExpertsGrouped, PublicFunctionGivesTheGradientsOfTheSparseOne) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const Case c = test::random_case(seed, at::kDouble);
    const at::Tensor y = routed_experts_sparse(c.x, c.weights, c.mask, c.segments);
    const at::Tensor grouped =
        routed_experts_grouped(c.x, c.weights, c.mask, c.mask.detach().ne(0), shared_layout_of(c));
    const at::Tensor y_gradient = at::randn_like(y);
    const auto expected = test::gradients(y, c, y_gradient);
    const auto actual = test::gradients(grouped, c, y_gradient);
    EXPECT_LT(relative_error(grouped, y), 1e-12);
    EXPECT_LT(relative_error(actual.x, expected.x), 1e-12);
    EXPECT_LT(relative_error(actual.gate, expected.gate), 1e-12);
    EXPECT_LT(relative_error(actual.down, expected.down), 1e-12);
    EXPECT_LT(relative_error(actual.mask, expected.mask), 1e-12);
  }
}

TEST(RoutedExpertsGrouped, AMaskOfZeroKeepsItsGradientWhereTheEntryIsSelected) {
  Case c =
      make_case({.num_tokens = 12, .dim = 6, .num_experts = 4, .expert_dim = 5, .k = 2, .segment_length = 3},
                1, at::kDouble);
  const at::Tensor selected = c.mask.detach().ne(0);
  const SegmentLayoutPointer layout = shared_layout_of(c);
  const at::Tensor expected =
      test::gradients(routed_experts_masked_dense(c.x, c.weights, c.mask, c.segments), c, at::ones_like(c.x))
          .mask;
  c.mask = test::leaf(at::zeros_like(c.mask));
  const at::Tensor y = routed_experts_grouped(c.x, c.weights, c.mask, selected, layout);
  EXPECT_EQ(y.abs().max().item<double>(), 0.0);
  EXPECT_LT(relative_error(test::gradients(y, c, at::ones_like(c.x)).mask, expected * selected), 1e-12);
}

TEST(RoutedExpertsGrouped, ReadsNothingBackInBfloat16) {
  const LowPrecisionCase both = low_precision_case();
  const at::Tensor selected = both.low.mask.detach().ne(0);
  const SegmentLayoutPointer layout = shared_layout_of(both.low);
  const testing::HostReadRecorder recorder;
  const at::Tensor y = routed_experts_grouped(both.low.x, both.low.weights, both.low.mask, selected, layout);
  y.sum().backward();
  EXPECT_EQ(recorder.found(), std::vector<std::string>());
  // The recorder would see it: without the layout the counts come from the mask.
  (void)both.low.mask.detach().sum().item<float>();
  EXPECT_FALSE(recorder.found().empty());
}

TEST(RoutedExpertsGrouped, RefusesWidthsThatTheGroupedProductCannotTake) {
  const Case c =
      make_case({.num_tokens = 4, .dim = 12, .num_experts = 2, .expert_dim = 8, .k = 1, .segment_length = 2},
                1, at::kBFloat16);
  try {
    routed_experts_sparse(c.x, c.weights, c.mask, c.segments);
    FAIL() << "accepted D = 12";
  } catch (const std::logic_error& error) {
    EXPECT_NE(std::string(error.what()).find("D is 12 and h is 8; bfloat16 needs multiples of 8"),
              std::string::npos)
        << error.what();
  }
}

TEST(RoutedExpertsGrouped, CudaEqualsTheCpu) {
  if (!at::hasCUDA()) {
    GTEST_SKIP() << "needs a CUDA device and a build with SMOE_CUDA=ON";
  }
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const Case c = make_case(
        {.num_tokens = 512, .dim = 64, .num_experts = 8, .expert_dim = 32, .k = 3, .segment_length = 32}, 5,
        type);
    Case on_device = c;
    const auto move = [](const at::Tensor& values) { return test::leaf(values.to(at::kCUDA)); };
    on_device.x = move(c.x);
    on_device.weights = {move(c.weights.gate_EhD), move(c.weights.up_EhD), move(c.weights.down_EDh)};
    on_device.mask = move(c.mask);
    const double tolerance = type == at::kFloat ? 1e-4 : 2e-2;
    const at::Tensor y_gradient = at::randn_like(c.x);
    const at::Tensor y = routed_experts_sparse(c.x, c.weights, c.mask, c.segments);
    const at::Tensor device_y =
        routed_experts_grouped(on_device.x, on_device.weights, on_device.mask, on_device.mask.detach().ne(0),
                               shared_layout_of(c, at::kCUDA));
    EXPECT_LT(relative_error(device_y.cpu(), y), tolerance);
    const auto expected = test::gradients(y, c, y_gradient);
    const auto actual = test::gradients(device_y, on_device, y_gradient.to(at::kCUDA));
    EXPECT_LT(relative_error(actual.x.cpu(), expected.x), tolerance);
    EXPECT_LT(relative_error(actual.gate.cpu(), expected.gate), tolerance);
    EXPECT_LT(relative_error(actual.down.cpu(), expected.down), tolerance);
    EXPECT_LT(relative_error(actual.mask.cpu(), expected.mask), tolerance);
  }
}

}  // namespace
}  // namespace smoe
