#include "html_parts.h"

#include <fmt/format.h>

#include "smoe/report/chart.h"

namespace smoe {

std::string html_table(const std::vector<std::string>& header,
                       const std::vector<std::vector<std::string>>& rows) {
  std::string html = "<div class=\"scroll\"><table><thead><tr>";
  for (const std::string& cell : header) html += "<th>" + cell + "</th>";
  html += "</tr></thead><tbody>";
  for (const std::vector<std::string>& row : rows) {
    html += "<tr>";
    for (const std::string& cell : row) html += "<td>" + cell + "</td>";
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string html_tabs(const std::string& name,
                      const std::vector<std::pair<std::string, std::string>>& contents) {
  if (contents.size() == 1) return contents.front().second;
  // The style sheet pairs the n-th button with the n-th content only up to kMaxTabs; more are shown one below
  // the other.
  std::string html;
  if (contents.size() > kMaxTabs) {
    for (const auto& [label, content] : contents) html += "<h3>" + html_escaped(label) + "</h3>" + content;
    return html;
  }
  html = "<div class=\"tabs\">";
  for (size_t i = 0; i < contents.size(); ++i) {
    html +=
        fmt::format("<input type=\"radio\" name=\"{0}\" id=\"{0}{1}\"{2}><label for=\"{0}{1}\">{3}</label>",
                    name, i, i == 0 ? " checked" : "", html_escaped(contents[i].first));
  }
  for (const auto& [label, content] : contents) html += "<div class=\"tab\">" + content + "</div>";
  return html + "</div>";
}

}  // namespace smoe
