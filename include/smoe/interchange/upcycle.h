// Upcycling: the start of a MoE model out of a trained dense one. The first layers stay dense, the
// feed-forward of every other layer becomes experts; attention, norms and embeddings are taken over.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>

#include "smoe/core/config_fields.h"
#include "smoe/interchange/huggingface.h"
#include "smoe/model/model_config.h"

namespace smoe {

enum class UpcycleMethod {
  kSplit,  // the hidden units are dealt out: (s + E) * h of them
  kCopy,   // every expert is the whole feed-forward, h units wide
};
template <>
struct EnumNames<UpcycleMethod> {
  static constexpr std::array values = {enum_name(UpcycleMethod::kSplit, "split"),
                                        enum_name(UpcycleMethod::kCopy, "copy")};
};

// Which hidden units go where in a split.
enum class UnitOrder {
  kIndex,  // as they are: the first s * h units to the shared expert, then h to each routed one
  kNorm,   // by |gate| * |up| * |down|: the largest to the shared expert, the others in turn to the routed
           // ones
};
template <>
struct EnumNames<UnitOrder> {
  static constexpr std::array values = {enum_name(UnitOrder::kIndex, "index"),
                                        enum_name(UnitOrder::kNorm, "norm")};
};

struct UpcycleOptions {
  UpcycleMethod method = UpcycleMethod::kSplit;
  UnitOrder order = UnitOrder::kIndex;  // split only
  std::string budget;                   // copy: the one that equals the dense model; empty: the largest
  double noise = 0.0;  // copy: normal noise on the routed experts, as a share of each tensor's deviation
  uint64_t seed = 1;   // of noise, router and mask generator
};

// Writes the new checkpoint folder `out`. The output of the new model is the dense one's exactly (up to the
// order of summation, and the rounding of the stored type)
//   split, stepped_moe: with all E experts active. Fewer leave units out; nothing makes up for them.
//   copy, stepped_moe:  with the k experts of `budget`; the down projections are divided by s + k.
//   copy, vanilla_moe:  with every k; the down projections are divided by s + 1 (normalised weights add up to
//   1).
// Size embeddings start at 0, router and mask generator as in a new model. Throws CheckpointError listing
// every key in which `target` does not fit.
InterchangeSummary upcycle_checkpoint(const std::filesystem::path& dense, const std::filesystem::path& out,
                                      const ModelConfig& target, const UpcycleOptions& options);

}  // namespace smoe
