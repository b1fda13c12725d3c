// One self-contained HTML page about one or several runs: what smoe-report writes.
#pragma once

#include <string>
#include <vector>

#include "smoe/report/run_data.h"

namespace smoe {

// The page has no script and loads nothing; it follows the reader's light or dark setting and fits narrow
// screens. Sections: summary, config and what differs between the runs, loss per budget against tokens,
// FLOPs and seconds, validation by source, router health, speed and memory, benchmark results. `runs` must
// not be empty.
std::string html_report(const std::vector<RunData>& runs);

}  // namespace smoe
