#include "smoe/routing/router_statistics.h"

#include <cmath>

#include "routing_test_support.h"

namespace smoe::testing {
namespace {

struct MicroBatch {
  RoutingPlan plan;
  SegmentMap segments;
};

MicroBatch micro_batch(uint64_t seed, int64_t count) {
  SelectionControls controls;
  controls.temperature = 0.3;
  const at::Tensor logits_QLE = gaussian({12, 3, 10}, seed);
  return {make_routing_plan(logits_QLE, counts(12, count), {}, controls), fixed_segments(3, 13, 4)};
}

// Everything again with plain loops over plain arrays.
RouterPanel recount(const std::vector<MicroBatch>& batches, int64_t num_layers, int64_t num_experts) {
  RouterPanel panel;
  std::vector<std::vector<double>> loads;
  double saturated = 0, selected = 0, overlap = 0, pairs = 0, cosine = 0, cosine_pairs = 0, deviation = 0;
  for (int64_t l = 0; l < num_layers; ++l) {
    std::vector<std::vector<double>> masks;
    std::vector<std::vector<double>> logits;
    std::vector<double> load(static_cast<size_t>(num_experts), 0.0);
    for (const MicroBatch& batch : batches) {
      for (int64_t q = 0; q < batch.segments.num_segments(); ++q) {
        std::vector<double> mask, logit;
        double shared = 0, size = 0;
        for (int64_t e = 0; e < num_experts; ++e) {
          mask.push_back(batch.plan.mask_QLE[q][l][e].item<double>());
          logit.push_back(batch.plan.logits_QLE[q][l][e].item<double>());
          load[static_cast<size_t>(e)] += mask.back();
          size += mask.back();
          selected += mask.back();
          if (mask.back() == 1 && batch.plan.soft_QLE[q][l][e].item<double>() >= 1) saturated += 1;
          if (q > 0) shared += mask.back() * batch.plan.mask_QLE[q - 1][l][e].item<double>();
        }
        const auto index = static_cast<size_t>(q);
        if (q > 0 && batch.segments.segments[index].row == batch.segments.segments[index - 1].row) {
          overlap += shared / size;
          pairs += 1;
        }
        masks.push_back(mask);
        logits.push_back(logit);
      }
    }
    for (size_t a = 0; a < masks.size(); ++a) {
      for (size_t b = 0; b < masks.size(); ++b) {
        if (a == b) continue;
        double dot = 0, norm_a = 0, norm_b = 0;
        for (size_t e = 0; e < masks[a].size(); ++e) {
          dot += masks[a][e] * masks[b][e];
          norm_a += masks[a][e] * masks[a][e];
          norm_b += masks[b][e] * masks[b][e];
        }
        cosine += dot / std::sqrt(norm_a * norm_b);
        cosine_pairs += 1;
      }
    }
    for (size_t e = 0; e < static_cast<size_t>(num_experts); ++e) {
      double mean = 0, square = 0;
      for (const auto& logit : logits) mean += logit[e] / static_cast<double>(logits.size());
      for (const auto& logit : logits) square += (logit[e] - mean) * (logit[e] - mean);
      deviation += std::sqrt(square / static_cast<double>(logits.size()));
    }
    loads.push_back(load);
  }
  const auto cells = static_cast<double>(num_layers * num_experts);
  for (const auto& load : loads) {
    double total = 0, largest = 0;
    for (const double value : load) total += value;
    for (const double value : load) {
      largest = std::max(largest, value);
      if (value > 0) panel.load_entropy -= value / total * std::log(value / total);
      if (value == 0) panel.dead_expert_share += 1 / cells;
    }
    panel.max_violation =
        std::max(panel.max_violation, largest * static_cast<double>(num_experts) / total - 1);
  }
  panel.load_entropy /= static_cast<double>(num_layers) * std::log(static_cast<double>(num_experts));
  panel.saturated_share = saturated / selected;
  panel.neighbor_overlap = overlap / pairs;
  panel.random_pair_cosine = cosine / cosine_pairs;
  panel.logit_std = deviation / cells;
  return panel;
}

TEST(RouterStatistics, EqualANaiveRecountOverMicroBatchesAndBudgets) {
  const std::vector<MicroBatch> batches = {micro_batch(101, 2), micro_batch(102, 5), micro_batch(103, 2)};
  RouterStatistics statistics(3, 10);
  for (const MicroBatch& batch : batches) statistics.add(batch.plan, batch.segments);
  const RouterPanel panel = statistics.panel();
  const RouterPanel expected = recount(batches, 3, 10);
  EXPECT_NEAR(panel.load_entropy, expected.load_entropy, 1e-9);
  EXPECT_NEAR(panel.max_violation, expected.max_violation, 1e-9);
  EXPECT_NEAR(panel.dead_expert_share, expected.dead_expert_share, 1e-9);
  EXPECT_NEAR(panel.saturated_share, expected.saturated_share, 1e-9);
  EXPECT_NEAR(panel.neighbor_overlap, expected.neighbor_overlap, 1e-9);
  EXPECT_NEAR(panel.random_pair_cosine, expected.random_pair_cosine, 1e-6);
  EXPECT_NEAR(panel.logit_std, expected.logit_std, 1e-6);
  EXPECT_GT(panel.saturated_share, 0.1);
  EXPECT_EQ(statistics.num_segments(), 36);
  EXPECT_EQ(statistics.load_LE().sum().item<int64_t>(), 3 * 12 * (2 + 5 + 2));
}

TEST(RouterStatistics, OfPartsAddUpToThoseOfTheWhole) {
  const std::vector<MicroBatch> batches = {micro_batch(101, 2), micro_batch(102, 5), micro_batch(103, 2)};
  RouterStatistics whole(3, 10), first(3, 10), second(3, 10), merged(3, 10);
  for (const MicroBatch& batch : batches) whole.add(batch.plan, batch.segments);
  first.add(batches[0].plan, batches[0].segments);
  second.add(batches[1].plan, batches[1].segments);
  second.add(batches[2].plan, batches[2].segments);
  merged.set_sums(first.sums() + second.sums());
  EXPECT_EQ(merged.num_segments(), whole.num_segments());
  EXPECT_TRUE(at::equal(merged.load_LE(), whole.load_LE()));
  const RouterPanel expected = whole.panel(), found = merged.panel();
  for (const RouterPanelField& field : kRouterPanelFields)
    EXPECT_NEAR(found.*field.value, expected.*field.value, 1e-12) << field.name;
}

TEST(RouterStatistics, SeeACollapse) {
  at::Tensor logits_QLE = at::zeros({12, 2, 10});
  logits_QLE.slice(2, 0, 2).fill_(20);
  RouterStatistics statistics(2, 10);
  statistics.add(make_routing_plan(logits_QLE, counts(12, 2), {}, {}), fixed_segments(3, 16, 4));
  const RouterPanel panel = statistics.panel();
  EXPECT_NEAR(panel.load_entropy, std::log(2.0) / std::log(10.0), 1e-9);
  EXPECT_NEAR(panel.max_violation, 4.0, 1e-9);
  EXPECT_NEAR(panel.dead_expert_share, 0.8, 1e-9);
  EXPECT_NEAR(panel.neighbor_overlap, 1.0, 1e-9);
  EXPECT_NEAR(panel.random_pair_cosine, 1.0, 1e-6);
  EXPECT_NEAR(panel.logit_std, 0.0, 1e-9);
}

TEST(RouterStatistics, OfRandomMasksAreWhatChanceGives) {
  RoutingConfig config;
  config.mask_source = MaskSource::kRandom;
  RouterStatistics statistics(4, 20);
  const RoutingPlan plan = make_routing_plan(at::zeros({1000, 4, 20}), counts(1000, 5), config, {});
  statistics.add(plan, fixed_segments(10, 400, 4));
  const RouterPanel panel = statistics.panel();
  EXPECT_GT(panel.load_entropy, 0.999);
  EXPECT_EQ(panel.dead_expert_share, 0);
  EXPECT_EQ(panel.saturated_share, 0);
  EXPECT_EQ(panel.logit_std, 0);
  EXPECT_NEAR(panel.neighbor_overlap, 0.25, 0.01);
  EXPECT_NEAR(panel.random_pair_cosine, 0.25, 0.005);
}

TEST(RouterStatistics, StartAtZeroAndReturnThereOnReset) {
  RouterStatistics statistics(3, 10);
  EXPECT_EQ(statistics.panel().load_entropy, 0);
  const MicroBatch batch = micro_batch(104, 3);
  statistics.add(batch.plan, batch.segments);
  EXPECT_GT(statistics.panel().load_entropy, 0);
  statistics.reset();
  EXPECT_EQ(statistics.num_segments(), 0);
  EXPECT_EQ(statistics.load_LE().sum().item<int64_t>(), 0);
  EXPECT_EQ(statistics.panel().logit_std, 0);
}

TEST(RouterStatistics, AcceptSegmentsWithoutExperts) {
  RouterStatistics statistics(3, 10);
  const MicroBatch batch = micro_batch(105, 0);
  statistics.add(batch.plan, batch.segments);
  const RouterPanel panel = statistics.panel();
  EXPECT_EQ(panel.dead_expert_share, 1);
  EXPECT_EQ(panel.neighbor_overlap, 0);
  EXPECT_TRUE(std::isfinite(panel.load_entropy) && std::isfinite(panel.random_pair_cosine));
}

TEST(RouterStatistics, RefuseAnotherShape) {
  RouterStatistics statistics(3, 11);
  const MicroBatch batch = micro_batch(106, 3);
  EXPECT_THROW(statistics.add(batch.plan, batch.segments), std::logic_error);
}

TEST(SelectionBias, MovesAgainstTheLoadAndStaysCentred) {
  const at::Tensor load_LE = at::tensor({10, 2, 2, 2, 4, 4, 4, 4}, at::kLong).reshape({2, 4});
  const at::Tensor bias_LE = updated_selection_bias(at::zeros({2, 4}), load_LE, 0.01);
  EXPECT_LT(largest_difference(bias_LE[0], row({-0.015, 0.005, 0.005, 0.005})[0]), 1e-8);
  EXPECT_TRUE(at::equal(bias_LE[1], at::zeros({4})));
  EXPECT_EQ(bias_LE.scalar_type(), at::kFloat);
  at::Tensor drifted_LE = gaussian({2, 4}, 107) + 3;
  for (int i = 0; i < 100; ++i) drifted_LE = updated_selection_bias(drifted_LE, load_LE, 0.01);
  EXPECT_LT(drifted_LE.mean(1).abs().max().item<double>(), 1e-6);
}

TEST(SelectionBias, EvensOutASkewedLoad) {
  at::Tensor logits_QLE = gaussian({400, 1, 8}, 108);
  logits_QLE.select(2, 0).add_(1.5);
  at::Tensor bias_LE = at::zeros({1, 8});
  double first = 0, last = 0;
  for (int step = 0; step < 300; ++step) {
    RouterStatistics statistics(1, 8);
    statistics.add(make_routing_plan(logits_QLE, counts(400, 2), {}, {}, bias_LE), fixed_segments(4, 400, 4));
    last = statistics.panel().max_violation;
    if (step == 0) first = last;
    bias_LE = updated_selection_bias(bias_LE, statistics.load_LE(), 0.01);
  }
  EXPECT_GT(first, 1.5);
  EXPECT_LT(last, 0.1);
}

}  // namespace
}  // namespace smoe::testing
