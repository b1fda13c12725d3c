// The counts made from a config alone against the tensors of a model that was allocated from it.
#include <gtest/gtest.h>

#include "model/model_test_support.h"
#include "smoe/model/parameter_counts.h"

namespace smoe {
namespace {

int64_t trained_parameters(const Model& model) {
  int64_t total = 0;
  for (const NamedParameter& parameter : model.parameters()) {
    if (parameter.kind != ParameterKind::kBuffer) total += parameter.tensor.numel();
  }
  return total;
}

TEST(ParameterCounts, EqualTheAllocatedModelInEveryVariant) {
  for (const auto& [architecture, name] : EnumNames<Architecture>::values) {
    for (const SizeEmbedding size_embedding : {SizeEmbedding::kInput, SizeEmbedding::kNone}) {
      for (const bool flag : {false, true}) {
        ModelConfig config = testing::tiny_config(architecture);
        config.size_embedding = size_embedding;
        config.tied_embeddings = flag;
        config.qk_norm = flag;
        config.num_shared_experts = flag ? 2 : 0;
        config.routing.balance.kind = flag ? BalanceKind::kBias : BalanceKind::kNone;
        config.routing.mask_head = {flag ? MaskHeadKind::kMlp : MaskHeadKind::kLinear, 10, flag};
        const Model model(config, at::kCPU);
        EXPECT_EQ(count_parameters(config, 16).total, trained_parameters(model))
            << name << ", " << enum_to_name(size_embedding) << ", " << flag;
      }
    }
  }
}

}  // namespace
}  // namespace smoe
