// SLURM's compact lists of host names.
#include <charconv>

#include "smoe/core/error.h"
#include "smoe/distributed/launch.h"

namespace smoe {
namespace {

constexpr size_t kMostNodes = 1 << 20;

[[noreturn]] void unreadable(const std::string& list, const std::string& why) {
  throw ConfigError(fmt::format(
      "the SLURM node list `{}` cannot be read: {}. Set MASTER_ADDR and MASTER_PORT.", list, why));
}

int64_t parse_number(const std::string& list, const std::string& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0)
    unreadable(list, fmt::format("`{}` is no number", text));
  return number;
}

// "01-03,7" is 01, 02, 03, 7: leading zeros are part of the name.
std::vector<std::string> expand_ranges(const std::string& list, const std::string& ranges) {
  std::vector<std::string> all;
  for (size_t at = 0; at <= ranges.size();) {
    const size_t end = std::min(ranges.find(',', at), ranges.size());
    const std::string range = ranges.substr(at, end - at);
    const size_t dash = range.find('-');
    const std::string first = range.substr(0, dash);
    const std::string last = dash == std::string::npos ? first : range.substr(dash + 1);
    const int64_t low = parse_number(list, first), high = parse_number(list, last);
    if (high < low || static_cast<size_t>(high - low) > kMostNodes)
      unreadable(list, fmt::format("`{}` is no range", range));
    for (int64_t number = low; number <= high; ++number)
      all.push_back(fmt::format("{:0{}}", number, first.size()));
    at = end + 1;
  }
  return all;
}

// One item of the list; every bracket multiplies the names so far.
std::vector<std::string> expand_item(const std::string& list, const std::string& item) {
  std::vector<std::string> names = {""};
  for (size_t at = 0; at < item.size();) {
    const size_t open = std::min(item.find('[', at), item.size());
    for (std::string& name : names) name += item.substr(at, open - at);
    if (open == item.size()) break;
    const size_t close = item.find(']', open);
    if (close == std::string::npos) unreadable(list, "a bracket is not closed");
    std::vector<std::string> longer;
    const std::vector<std::string> endings = expand_ranges(list, item.substr(open + 1, close - open - 1));
    for (const std::string& name : names) {
      for (const std::string& ending : endings) longer.push_back(name + ending);
    }
    names = std::move(longer);
    at = close + 1;
  }
  return names;
}

}  // namespace

std::vector<std::string> expand_node_list(const std::string& list) {
  std::vector<std::string> nodes;
  int depth = 0;
  size_t begin = 0;
  for (size_t at = 0; at <= list.size(); ++at) {
    const char character = at < list.size() ? list[at] : ',';
    if (character == '[') ++depth;
    if (character == ']') --depth;
    if (character != ',' || (depth > 0 && at < list.size())) continue;
    const std::vector<std::string> names = expand_item(list, list.substr(begin, at - begin));
    nodes.insert(nodes.end(), names.begin(), names.end());
    begin = at + 1;
  }
  for (const std::string& node : nodes) {
    if (node.empty() || node.find_first_of(" ]") != std::string::npos)
      unreadable(list, fmt::format("`{}` is no host name", node));
  }
  return nodes;
}

}  // namespace smoe
