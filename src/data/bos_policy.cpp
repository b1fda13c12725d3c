#include "smoe/data/bos_policy.h"

#include <utility>

#include "smoe/core/error.h"

namespace smoe {
namespace {

constexpr std::pair<const char*, BosPolicy> kPolicies[] = {{"auto", BosPolicy::kAuto},
                                                           {"always", BosPolicy::kAlways},
                                                           {"never", BosPolicy::kNever},
                                                           {"eos", BosPolicy::kEos}};

}  // namespace

BosPolicy parse_bos_policy(const std::string& text) {
  for (const auto& [name, policy] : kPolicies) {
    if (text == name) return policy;
  }
  throw ConfigError(fmt::format("unknown BOS policy `{}`; allowed: auto, always, never, eos", text));
}

std::string bos_policy_name(BosPolicy policy) {
  for (const auto& [name, candidate] : kPolicies) {
    if (candidate == policy) return name;
  }
  SMOE_ASSERT(false);
}

std::optional<int32_t> leading_token(const Tokenizer& tokenizer, BosPolicy policy) {
  SMOE_CHECK(
      ConfigError, policy != BosPolicy::kAlways || tokenizer.bos_id().has_value(),
      "{}: the tokenizer defines no BOS token; choose auto, never or eos with --bos, or `evaluation.bos` "
      "of a training run",
      tokenizer.path().string());
  SMOE_CHECK(ConfigError, policy != BosPolicy::kEos || tokenizer.eos_id().has_value(),
             "{}: the tokenizer defines no EOS token; choose auto or never with --bos, `evaluation.bos` of a "
             "training run, or `bos` of a chat template",
             tokenizer.path().string());
  if (policy == BosPolicy::kNever) return std::nullopt;
  return policy == BosPolicy::kEos ? tokenizer.eos_id() : tokenizer.bos_id();
}

}  // namespace smoe
