#include "smoe/routing/routing_mode.h"

#include <utility>

#include "smoe/core/error.h"

namespace smoe {
namespace {

constexpr std::pair<const char*, RoutingMode> kModes[] = {
    {"segments", RoutingMode::kSegments}, {"last_prompt_token", RoutingMode::kLastPromptToken}};

}  // namespace

RoutingMode parse_routing_mode(const std::string& text) {
  for (const auto& [name, mode] : kModes) {
    if (text == name) return mode;
  }
  throw ConfigError(fmt::format("unknown routing mode `{}`; allowed: segments, last_prompt_token", text));
}

std::string routing_mode_name(RoutingMode mode) {
  for (const auto& [name, candidate] : kModes) {
    if (candidate == mode) return name;
  }
  SMOE_ASSERT(false);
}

}  // namespace smoe
