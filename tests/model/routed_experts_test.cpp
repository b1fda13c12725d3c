// The sparse path against the masked-dense reference, and both against finite differences.
//
// Shape legend: N tokens, D model width, E experts, h expert width, Q segments.
#include "smoe/model/routed_experts.h"

#include <ATen/Parallel.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>

#include "routed_experts_cases.h"

namespace smoe {
namespace {

using test::Case;
using test::CaseShape;
using test::gradients;
using test::make_case;
using test::relative_error;
using ::testing::HasSubstr;

using Path = std::function<at::Tensor(const Case&)>;

at::Tensor sparse(const Case& c) { return routed_experts_sparse(c.x, c.weights, c.mask, c.segments); }
at::Tensor recomputing(const Case& c) { return routed_experts_sparse(c.x, c.weights, c.mask, c.segments, 0); }
at::Tensor dense(const Case& c) { return routed_experts_masked_dense(c.x, c.weights, c.mask, c.segments); }

// Output and all gradients; the mask's only where an expert was computed.
void expect_sparse_equals_dense(const Case& c, double tolerance) {
  const at::Tensor y_gradient = at::randn_like(c.x);
  EXPECT_LT(relative_error(sparse(c), dense(c)), tolerance) << c.description;
  const auto actual = gradients(sparse(c), c, y_gradient);
  const auto expected = gradients(dense(c), c, y_gradient);
  EXPECT_LT(relative_error(actual.x, expected.x), tolerance) << c.description;
  EXPECT_LT(relative_error(actual.gate, expected.gate), tolerance) << c.description;
  EXPECT_LT(relative_error(actual.up, expected.up), tolerance) << c.description;
  EXPECT_LT(relative_error(actual.down, expected.down), tolerance) << c.description;
  const at::Tensor selected = c.mask.detach().ne(0).to(expected.mask.scalar_type());
  EXPECT_LT(relative_error(actual.mask, expected.mask * selected), tolerance) << c.description;
}

TEST(RoutedExperts, SparseEqualsDenseOnRandomShapesInFloat64) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    expect_sparse_equals_dense(test::random_case(seed, at::kDouble), 1e-12);
  }
}

TEST(RoutedExperts, SparseEqualsDenseOnRandomShapesInFloat32) {
  for (uint64_t seed = 100; seed < 160; ++seed) {
    expect_sparse_equals_dense(test::random_case(seed, at::kFloat), 1e-5);
  }
}

// Many chunks an expert, and experts that two threads share. Each number of threads divides the work
// otherwise.
TEST(RoutedExperts, SparseEqualsDenseWhenExpertsSpanChunksAndThreads) {
  const int original = at::get_num_threads();
  for (const int num_threads : {1, 2, 5}) {
    at::set_num_threads(num_threads);
    for (const int64_t segment_length : {1500, 7}) {
      expect_sparse_equals_dense(make_case({.num_tokens = 1500,
                                            .dim = 24,
                                            .num_experts = 3,
                                            .expert_dim = 16,
                                            .k = 2,
                                            .segment_length = segment_length},
                                           7, at::kDouble),
                                 1e-12);
    }
  }
  at::set_num_threads(original);
}

TEST(RoutedExperts, SparseEqualsDenseWhenEveryTokenHasItsOwnWeights) {
  Case c = make_case(
      {.num_tokens = 300, .dim = 20, .num_experts = 9, .expert_dim = 6, .k = 3, .segment_length = 1}, 11,
      at::kDouble);
  c.mask = (c.mask.detach() * at::rand_like(c.mask)).requires_grad_(true);
  expect_sparse_equals_dense(c, 1e-12);
}

TEST(RoutedExperts, SparseEqualsDenseWithAllExperts) {
  const Case c =
      make_case({.num_tokens = 33, .dim = 8, .num_experts = 5, .expert_dim = 4, .k = 5, .segment_length = 8},
                3, at::kDouble);
  expect_sparse_equals_dense(c, 1e-12);
}

TEST(RoutedExperts, ExpertsWithoutTokensGetExactlyZeroGradients) {
  Case c =
      make_case({.num_tokens = 20, .dim = 8, .num_experts = 6, .expert_dim = 4, .k = 2, .segment_length = 5},
                5, at::kFloat);
  c.mask = at::zeros({4, 6});
  c.mask.select(1, 2).fill_(1);
  c.mask.requires_grad_(true);
  const auto actual = gradients(sparse(c), c, at::ones_like(c.x));
  for (const int64_t expert : {0, 1, 3, 4, 5}) {
    EXPECT_EQ(actual.gate[expert].count_nonzero().item<int64_t>(), 0) << expert;
    EXPECT_EQ(actual.up[expert].count_nonzero().item<int64_t>(), 0) << expert;
    EXPECT_EQ(actual.down[expert].count_nonzero().item<int64_t>(), 0) << expert;
  }
  EXPECT_GT(actual.gate[2].count_nonzero().item<int64_t>(), 0);
}

TEST(RoutedExperts, NothingSelectedGivesZeros) {
  for (const auto path : {sparse, dense}) {
    Case c = make_case(
        {.num_tokens = 12, .dim = 8, .num_experts = 3, .expert_dim = 4, .k = 0, .segment_length = 5}, 5,
        at::kFloat);
    const at::Tensor y = path(c);
    EXPECT_EQ(y.count_nonzero().item<int64_t>(), 0);
    const auto actual = gradients(y, c, at::ones_like(c.x));
    EXPECT_EQ(actual.x.count_nonzero().item<int64_t>(), 0);
    EXPECT_EQ(actual.down.count_nonzero().item<int64_t>(), 0);
  }
}

TEST(RoutedExperts, NoTokensGiveAnEmptyOutputAndZeroGradients) {
  for (const auto path : {sparse, dense}) {
    const Case c =
        make_case({.num_tokens = 0, .dim = 8, .num_experts = 3, .expert_dim = 4, .k = 1}, 5, at::kFloat);
    const at::Tensor y = path(c);
    EXPECT_EQ(y.sizes(), at::IntArrayRef({0, 8}));
    const auto actual = gradients(y, c, at::ones_like(c.x));
    EXPECT_EQ(actual.x.sizes(), at::IntArrayRef({0, 8}));
    EXPECT_EQ(actual.gate.count_nonzero().item<int64_t>(), 0);
  }
}

TEST(RoutedExperts, AnEmptySegmentChangesNothing) {
  Case c =
      make_case({.num_tokens = 10, .dim = 8, .num_experts = 3, .expert_dim = 4, .k = 1, .segment_length = 5},
                5, at::kDouble);
  const at::Tensor expected = sparse(c);
  c.segments.insert(c.segments.begin() + 1, TokenRange{5, 5});
  c.mask = at::cat({c.mask[0].unsqueeze(0), at::ones({1, 3}, at::kDouble), c.mask[1].unsqueeze(0)}).detach();
  EXPECT_TRUE(at::equal(sparse(c), expected));
}

// Central differences of a random projection of the output, on sampled entries of every input.
void expect_finite_differences(const Path& path, bool selected_only) {
  const Case c =
      make_case({.num_tokens = 17, .dim = 6, .num_experts = 4, .expert_dim = 5, .k = 2, .segment_length = 4},
                21, at::kDouble);
  const at::Tensor y_gradient = at::randn_like(c.x);
  const auto actual = gradients(path(c), c, y_gradient);
  const auto check = [&](const at::Tensor& input, const at::Tensor& gradient, const char* name) {
    at::NoGradGuard no_grad;
    const at::Tensor values = input.view(-1);
    const at::Tensor expected = gradient.reshape({-1});
    for (int64_t i = 0; i < values.numel(); ++i) {
      const double original = values[i].item<double>();
      if (selected_only && input.is_same(c.mask) && original == 0.0) {
        continue;
      }
      constexpr double kStep = 1e-5;
      values[i].fill_(original + kStep);
      const double above = (path(c) * y_gradient).sum().item<double>();
      values[i].fill_(original - kStep);
      const double below = (path(c) * y_gradient).sum().item<double>();
      values[i].fill_(original);
      EXPECT_NEAR((above - below) / (2 * kStep), expected[i].item<double>(), 1e-7) << name << " " << i;
    }
  };
  check(c.x, actual.x, "x");
  check(c.weights.gate_EhD, actual.gate, "gate");
  check(c.weights.up_EhD, actual.up, "up");
  check(c.weights.down_EDh, actual.down, "down");
  check(c.mask, actual.mask, "mask");
}

TEST(RoutedExpertsGradient, SparsePathMatchesFiniteDifferences) {
  expect_finite_differences(sparse, true);
  expect_finite_differences(recomputing, true);
}
TEST(RoutedExpertsGradient, DensePathMatchesFiniteDifferences) { expect_finite_differences(dense, false); }

TEST(RoutedExperts, MaskGradientsOfAllAndSelectedDifferOnUnselectedEntriesOnly) {
  const Case c =
      make_case({.num_tokens = 40, .dim = 8, .num_experts = 6, .expert_dim = 4, .k = 2, .segment_length = 8},
                9, at::kDouble);
  const at::Tensor y_gradient = at::randn_like(c.x);
  const auto with = [&](MaskGradient kind) {
    return gradients(routed_experts(c.x, c.weights, c.mask, c.segments, kind), c, y_gradient).mask;
  };
  const at::Tensor all = with(MaskGradient::kAll);
  const at::Tensor selected = with(MaskGradient::kSelected);
  const at::Tensor is_selected = c.mask.detach().ne(0);
  EXPECT_TRUE(
      at::allclose(all.masked_select(is_selected), selected.masked_select(is_selected), 1e-12, 1e-12));
  const at::Tensor unselected = is_selected.logical_not();
  EXPECT_EQ(selected.masked_select(unselected).count_nonzero().item<int64_t>(), 0);
  EXPECT_EQ(all.masked_select(unselected).count_nonzero().item<int64_t>(),
            unselected.count_nonzero().item<int64_t>());
}

TEST(RoutedExperts, TwoRunsAreBitwiseEqual) {
  const Case c = make_case(
      {.num_tokens = 700, .dim = 64, .num_experts = 8, .expert_dim = 32, .k = 3, .segment_length = 32}, 13,
      at::kFloat);
  const at::Tensor y_gradient = at::randn_like(c.x);
  const at::Tensor y = sparse(c);
  const auto first = gradients(y, c, y_gradient);
  for (int repeat = 0; repeat < 5; ++repeat) {
    const at::Tensor again = sparse(c);
    EXPECT_TRUE(at::equal(again, y));
    const auto second = gradients(again, c, y_gradient);
    EXPECT_TRUE(at::equal(second.x, first.x));
    EXPECT_TRUE(at::equal(second.gate, first.gate));
    EXPECT_TRUE(at::equal(second.up, first.up));
    EXPECT_TRUE(at::equal(second.down, first.down));
    EXPECT_TRUE(at::equal(second.mask, first.mask));
  }
}

// Counts the bytes of tensors that this thread allocates and frees.
class AllocationCounter : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
    live_bytes += bytes;
    peak_bytes = std::max(peak_bytes, live_bytes);
  }
  bool memoryProfilingEnabled() const override { return true; }

  int64_t live_bytes = 0;
  int64_t peak_bytes = 0;
};

struct MemoryUse {
  int64_t held_bytes = 0;  // between forward and backward
  int64_t peak_bytes = 0;
};

MemoryUse measure_memory(const Path& path, int64_t k) {
  const Case c = make_case(
      {.num_tokens = 512, .dim = 32, .num_experts = 16, .expert_dim = 64, .k = k, .segment_length = 32}, 19,
      at::kFloat);
  const at::Tensor y_gradient = at::randn_like(c.x);
  const auto counter = std::make_shared<AllocationCounter>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, counter);
  const at::Tensor y = path(c);
  MemoryUse use{.held_bytes = counter->live_bytes};
  const auto all = gradients(y, c, y_gradient);
  use.peak_bytes = counter->peak_bytes;
  return use;
}

TEST(RoutedExperts, RecomputedActivationsAreThoseThatWouldHaveBeenKept) {
  const Case c =
      make_case({.num_tokens = 90, .dim = 8, .num_experts = 5, .expert_dim = 4, .k = 3, .segment_length = 16},
                41, at::kFloat);
  const at::Tensor y_gradient = at::randn_like(c.x);
  EXPECT_TRUE(at::equal(sparse(c), recomputing(c)));
  const auto kept = gradients(sparse(c), c, y_gradient);
  const auto recomputed = gradients(recomputing(c), c, y_gradient);
  EXPECT_TRUE(at::equal(kept.x, recomputed.x));
  EXPECT_TRUE(at::equal(kept.gate, recomputed.gate));
  EXPECT_TRUE(at::equal(kept.up, recomputed.up));
  EXPECT_TRUE(at::equal(kept.down, recomputed.down));
  EXPECT_TRUE(at::equal(kept.mask, recomputed.mask));
}

TEST(RoutedExperts, MemoryOfTheSparsePathDoesNotGrowWithTheNumberOfActiveExperts) {
  const MemoryUse few = measure_memory(recomputing, 2);
  const MemoryUse many = measure_memory(recomputing, 16);
  EXPECT_EQ(few.held_bytes, many.held_bytes);
  // Scratch blocks grow with the rows of a chunk, up to its limit.
  EXPECT_LT(many.peak_bytes, few.peak_bytes + (int64_t{1} << 19));
  // Held: the output, and the list of segments. The dense path keeps the hidden states of all experts.
  EXPECT_LT(many.held_bytes, 512 * 32 * 4 + 4096);
  EXPECT_GT(measure_memory(dense, 16).held_bytes, 16 * 512 * 64 * 4);
}

TEST(RoutedExperts, NonContiguousInputsGiveTheSameResult) {
  const Case c =
      make_case({.num_tokens = 30, .dim = 8, .num_experts = 4, .expert_dim = 4, .k = 2, .segment_length = 8},
                17, at::kDouble);
  Case strided = c;
  const auto with_gaps = [](const at::Tensor& t) {
    return at::stack({t.detach(), at::zeros_like(t)}, -1).select(-1, 0).requires_grad_(true);
  };
  strided.x = with_gaps(c.x);
  strided.weights = {with_gaps(c.weights.gate_EhD), with_gaps(c.weights.up_EhD),
                     with_gaps(c.weights.down_EDh)};
  strided.mask = with_gaps(c.mask);
  ASSERT_FALSE(strided.x.is_contiguous());
  EXPECT_TRUE(at::equal(sparse(strided), sparse(c)));
  const at::Tensor y_gradient = at::randn({8, 30}, at::kDouble).t();
  EXPECT_TRUE(at::equal(gradients(sparse(strided), strided, y_gradient).gate,
                        gradients(sparse(c), c, y_gradient).gate));
}

TEST(RoutedExperts, GradientsThatNobodyNeedsAreNotComputed) {
  Case c =
      make_case({.num_tokens = 20, .dim = 8, .num_experts = 4, .expert_dim = 4, .k = 2, .segment_length = 5},
                23, at::kDouble);
  const at::Tensor expected = gradients(sparse(c), c, at::ones_like(c.x)).x;
  c.weights = {c.weights.gate_EhD.detach(), c.weights.up_EhD.detach(), c.weights.down_EDh.detach()};
  c.mask = c.mask.detach();
  const auto only_x = torch::autograd::grad({sparse(c)}, {c.x}, {at::ones_like(c.x)});
  EXPECT_TRUE(at::equal(only_x[0], expected));
}

TEST(RoutedExperts, AMaskInFloat32ServesFloat64Experts) {
  Case c =
      make_case({.num_tokens = 20, .dim = 8, .num_experts = 4, .expert_dim = 4, .k = 2, .segment_length = 5},
                25, at::kDouble);
  const auto expected = gradients(sparse(c), c, at::ones_like(c.x));
  c.mask = test::leaf(c.mask.to(at::kFloat));
  for (const auto path : {sparse, dense}) {
    const auto actual = gradients(path(c), c, at::ones_like(c.x));
    EXPECT_EQ(actual.mask.scalar_type(), at::kFloat);
    EXPECT_LT(relative_error(actual.gate, expected.gate), 1e-12);
  }
}

TEST(RoutedExperts, NotANumberInASelectedRowReachesTheOutput) {
  Case c =
      make_case({.num_tokens = 40, .dim = 8, .num_experts = 4, .expert_dim = 20, .k = 2, .segment_length = 5},
                27, at::kFloat);
  c.x = c.x.detach().clone();
  c.x[7].fill_(std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(sparse(c).isnan().sum().item<int64_t>(), 8);
}

TEST(RoutedExperts, LargeGatesNeitherOverflowNorVanish) {
  Case c =
      make_case({.num_tokens = 32, .dim = 4, .num_experts = 1, .expert_dim = 17, .k = 1, .segment_length = 8},
                29, at::kFloat);
  c.weights.gate_EhD = test::leaf(c.weights.gate_EhD * 300);
  expect_sparse_equals_dense(c, 1e-5);
}

TEST(RoutedExperts, ASecondDerivativeIsRefused) {
  const Case c =
      make_case({.num_tokens = 6, .dim = 4, .num_experts = 2, .expert_dim = 3, .k = 1}, 31, at::kDouble);
  try {
    torch::autograd::grad({sparse(c).sum()}, {c.x}, {}, true, true);
    FAIL() << "no error";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), HasSubstr("no second derivative"));
  }
}

// Calls with one argument changed, and what the message must say.
TEST(RoutedExperts, ArgumentsThatDoNotFitAreNamed) {
  const Case good =
      make_case({.num_tokens = 10, .dim = 4, .num_experts = 2, .expert_dim = 3, .k = 1, .segment_length = 5},
                33, at::kFloat);
  const auto expect_error = [&](const std::function<void(Case&)>& change,
                                const std::vector<std::string>& facts) {
    Case c = good;
    change(c);
    for (const auto kind : {MaskGradient::kSelected, MaskGradient::kAll}) {
      try {
        routed_experts(c.x, c.weights, c.mask, c.segments, kind);
        FAIL() << "no error with " << facts[0];
      } catch (const std::logic_error& error) {
        for (const std::string& fact : facts) {
          EXPECT_THAT(error.what(), HasSubstr(fact));
        }
      }
    }
  };
  expect_error([](Case& c) { c.x = at::zeros({10}); }, {"x must be a matrix"});
  expect_error([](Case& c) { c.weights.up_EhD = at::zeros({2, 3, 5}); }, {"up", "[2, 3, 5]", "[2, 3, 4]"});
  expect_error([](Case& c) { c.weights.down_EDh = at::zeros({2, 3, 4}); }, {"down", "[2, 4, 3]"});
  expect_error([](Case& c) { c.weights.down_EDh = at::Tensor(); }, {"down is undefined"});
  expect_error([](Case& c) { c.mask = at::zeros({3, 2}); }, {"mask", "[3, 2]", "[2, 2]"});
  expect_error([](Case& c) { c.mask = at::zeros({2, 2}, at::kLong); }, {"mask is Long"});
  expect_error([](Case& c) { c.x = c.x.to(at::kDouble); }, {"gate is Float", "Double"});
  expect_error([](Case& c) { c.x = c.x.to(at::kHalf); }, {"x is Half"});
  expect_error([](Case& c) { c.segments[1].begin = 6; }, {"segment 1 is [6, 10)", "begin at 5"});
  expect_error([](Case& c) { c.segments[1].end = 9; }, {"end at token 9", "10 tokens"});
}

}  // namespace
}  // namespace smoe
