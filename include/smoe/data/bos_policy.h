// Which token, if any, stands before every text that a model reads as the beginning of a document.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "smoe/data/tokenizer.h"

namespace smoe {

enum class BosPolicy {
  kAuto,    // BOS where the tokenizer defines one
  kAlways,  // BOS; an error where the tokenizer has none
  kNever,   // nothing
  kEos,     // EOS, for models trained on documents that EOS separates
};

// Throws ConfigError that lists the policies.
BosPolicy parse_bos_policy(const std::string& text);
std::string bos_policy_name(BosPolicy policy);

// The token that `policy` puts before a text. Throws ConfigError if the tokenizer lacks the token that the
// policy needs.
std::optional<int32_t> leading_token(const Tokenizer& tokenizer, BosPolicy policy);

}  // namespace smoe
