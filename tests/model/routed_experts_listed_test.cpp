#include "smoe/model/routed_experts_listed.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "model/encoded_matrix.h"

namespace smoe {
namespace {

struct Case {
  int64_t num_experts = 7;
  int64_t dim = 40;
  int64_t expert_dim = 19;  // no multiple of the vector width
  std::vector<TokenRange> segments;
};

ExpertWeights random_weights(const Case& c) {
  at::manual_seed(3);
  return {at::randn({c.num_experts, c.expert_dim, c.dim}), at::randn({c.num_experts, c.expert_dim, c.dim}),
          at::randn({c.num_experts, c.dim, c.expert_dim})};
}

// Every second expert, another set for every segment.
at::Tensor mask_of(const Case& c) {
  at::Tensor mask_QE = at::zeros({std::ssize(c.segments), c.num_experts});
  for (int64_t q = 0; q < mask_QE.size(0); ++q) {
    for (int64_t e = q % 2; e < c.num_experts - 1; e += 2)
      mask_QE[q][e] = 1.0F + 0.25F * static_cast<float>(q);
  }
  return mask_QE;
}

TEST(RoutedExpertsListed, EqualsTheMaskedDenseReference) {
  const std::vector<std::vector<TokenRange>> maps = {
      {{0, 1}}, {{0, 5}}, {{0, 1}, {1, 2}, {2, 3}}, {{0, 4}, {4, 4}, {4, 9}, {9, 10}}, {{0, 90}, {90, 170}}};
  for (const auto& segments : maps) {
    const Case c{.segments = segments};
    const ExpertWeights weights = random_weights(c);
    const at::Tensor x_ND = at::randn({segments.back().end, c.dim});
    const at::Tensor mask_QE = mask_of(c);
    const auto selected = selected_experts(mask_QE.unsqueeze(1));
    ASSERT_EQ(selected.size(), 1U);
    const at::Tensor found =
        routed_experts_listed(x_ND, list_resident_experts(weights, selected[0]), mask_QE, segments);
    const at::Tensor expected = routed_experts_masked_dense(x_ND, weights, mask_QE, segments);
    EXPECT_LT((found - expected).abs().max().item<double>(), 1e-5 * expected.abs().max().item<double>());
  }
}

TEST(ListedExpertsSum, DoesNotDependOnTheParts) {
  const Case c{.num_experts = 7, .dim = 160, .expert_dim = 130, .segments = {{0, 30}, {30, 90}, {90, 91}}};
  const ExpertWeights weights = random_weights(c);
  const at::Tensor x_ND = at::randn({91, c.dim});
  const at::Tensor mask_QE = mask_of(c);
  const std::vector<int64_t> selected = selected_experts(mask_QE.unsqueeze(1)).front();
  const at::Tensor whole =
      routed_experts_listed(x_ND, list_resident_experts(weights, selected), mask_QE, c.segments);
  for (const int64_t size : {1, 2, 4}) {
    ListedExpertsSum sum(x_ND, {c.dim, c.expert_dim}, mask_QE, c.segments);
    for (int64_t begin = 0; begin < std::ssize(selected); begin += size) {
      const int64_t end = std::min(begin + size, std::ssize(selected));
      sum.add(list_resident_experts(weights, {selected.begin() + begin, selected.begin() + end}));
    }
    EXPECT_TRUE(at::equal(sum.total(), whole)) << size;
  }
}

TEST(RoutedExpertsListed, RefusesAMaskWithExpertsThatAreNotListed) {
  const Case c{.segments = {{0, 2}}};
  EXPECT_THROW(routed_experts_listed(at::randn({2, c.dim}), list_resident_experts(random_weights(c), {0, 2}),
                                     mask_of(c), c.segments),
               std::logic_error);
}

TEST(SelectedExperts, AreTheUnionOverSegmentsOfEachLayer) {
  at::Tensor mask_QLE = at::zeros({2, 2, 4});
  mask_QLE[0][0][3] = 1;
  mask_QLE[1][0][1] = 1;
  mask_QLE[1][1][0] = 0.5;
  EXPECT_EQ(selected_experts(mask_QLE), (std::vector<std::vector<int64_t>>{{1, 3}, {0}}));
}

TEST(EncodedMatrix, GivesTheSameBitsForTheSameValuesInEveryEncoding) {
  const int64_t rows = 11, columns = 53;
  at::manual_seed(5);
  std::vector<uint16_t> halves;
  std::vector<float> floats, scales, quantised_values;
  std::vector<int8_t> quantised;
  const at::Tensor noise = at::randn({rows, columns});
  const float* values = noise.const_data_ptr<float>();
  for (int64_t i = 0; i < rows * columns; ++i) {
    if (i % columns == 0) scales.push_back(0.01F * static_cast<float>(1 + i));
    halves.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(values[i]) >> 16));
    floats.push_back(std::bit_cast<float>(static_cast<uint32_t>(halves.back()) << 16));
    quantised.push_back(static_cast<int8_t>(std::lround(40.0F * values[i]) % 127));
    quantised_values.push_back(scales.back() * static_cast<float>(quantised.back()));
  }
  const at::Tensor x = at::randn({columns});
  const auto product = [&](ExpertEncoding encoding, const void* data, const float* scale) {
    std::vector<float> result(static_cast<size_t>(rows), 0.5F);
    multiply_vector({encoding, data, scale, rows, columns}, x.const_data_ptr<float>(), result.data(), true);
    return result;
  };
  EXPECT_EQ(product(ExpertEncoding::kBfloat16, halves.data(), nullptr),
            product(ExpertEncoding::kFloat32, floats.data(), nullptr));
  EXPECT_EQ(product(ExpertEncoding::kInt8, quantised.data(), scales.data()),
            product(ExpertEncoding::kFloat32, quantised_values.data(), nullptr));
  std::vector<float> decoded(floats.size());
  decode_matrix({ExpertEncoding::kInt8, quantised.data(), scales.data(), rows, columns}, decoded.data());
  EXPECT_EQ(decoded, quantised_values);
  decode_matrix({ExpertEncoding::kBfloat16, halves.data(), nullptr, rows, columns}, decoded.data());
  EXPECT_EQ(decoded, floats);
  double expected = 0.5;
  for (int64_t c = 0; c < columns; ++c) expected += static_cast<double>(floats[c]) * x[c].item<double>();
  EXPECT_NEAR(product(ExpertEncoding::kFloat32, floats.data(), nullptr)[0], expected, 1e-4);
}

}  // namespace
}  // namespace smoe
