// Pieces of HTML that several sections of a report use.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace smoe {

// Cells are HTML. Scrolls sideways on narrow screens.
std::string html_table(const std::vector<std::string>& header,
                       const std::vector<std::vector<std::string>>& rows);

// Contents of which one at a time is shown, chosen by buttons with their (escaped) labels; without script.
// `name` must be unique on the page. At most kMaxTabs; with a single one there is no button.
inline constexpr size_t kMaxTabs = 8;
std::string html_tabs(const std::string& name,
                      const std::vector<std::pair<std::string, std::string>>& contents);

}  // namespace smoe
