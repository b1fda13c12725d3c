// The part of a report about routing masks.
#pragma once

#include <string>
#include <vector>

#include "smoe/report/run_data.h"

namespace smoe {

// Empty if no run has figures about its masks.
std::string mask_section(const std::vector<RunData>& runs);

}  // namespace smoe
