// Which token's state routes which tokens of a text that has a prompt: the choice that scoring and generation
// share.
#pragma once

#include <string>

namespace smoe {

enum class RoutingMode {
  kSegments,         // as in pre-training: runs of S from the first token, routed by their first token
  kLastPromptToken,  // as after fine-tuning: prompt and first S later tokens by the last prompt token
};

// Throws ConfigError that lists the modes.
RoutingMode parse_routing_mode(const std::string& text);
std::string routing_mode_name(RoutingMode mode);

}  // namespace smoe
