#include "smoe/model/segment_options.h"

#include "smoe/core/error.h"

namespace smoe {

void check_segment_options(const ModelConfig& config, bool has_segment_length, bool has_routing) {
  if (config.architecture == Architecture::kSteppedMoe) return;
  SMOE_CHECK(ConfigError, !has_segment_length && !has_routing,
             "{}: the model has no routing segments (architecture {}); leave the option out, or choose a "
             "checkpoint with architecture {}",
             has_segment_length ? "--segment-length" : "--routing", enum_to_name(config.architecture),
             enum_to_name(Architecture::kSteppedMoe));
}

}  // namespace smoe
