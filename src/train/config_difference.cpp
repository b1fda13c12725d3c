#include "smoe/train/config_difference.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "smoe/core/config.h"

namespace smoe {
namespace {

constexpr const char* kAbsent = "(absent)";
constexpr const char* kEmptyList = "[]";

using FlatConfig = std::vector<std::pair<std::string, std::string>>;

void flatten(const ConfigNode& node, const std::string& path, FlatConfig& flat) {
  switch (node.kind) {
    case ConfigNodeKind::kMapping:
      for (const ConfigEntry& entry : node.entries)
        flatten(entry.value, join_config_path(path, entry.key), flat);
      return;
    case ConfigNodeKind::kSequence:
      if (node.sequence.empty()) flat.emplace_back(path, kEmptyList);
      for (size_t i = 0; i < node.sequence.size(); ++i) {
        flatten(node.sequence[i], join_config_path(path, std::to_string(i)), flat);
      }
      return;
    case ConfigNodeKind::kScalar:
      flat.emplace_back(path, node.scalar);
      return;
    case ConfigNodeKind::kNull:
      flat.emplace_back(path, "null");
      return;
  }
}

FlatConfig flatten_yaml(std::string_view yaml, const std::string& label) {
  ConfigProblems problems;
  const ConfigNode root = parse_config_tree(yaml, label, problems);
  problems.throw_if_any(label);
  FlatConfig flat;
  flatten(root, "", flat);
  return flat;
}

const std::string* find_value(const FlatConfig& flat, const std::string& key) {
  const auto found =
      std::find_if(flat.begin(), flat.end(), [&](const auto& entry) { return entry.first == key; });
  return found == flat.end() ? nullptr : &found->second;
}

// An empty list where the other config has elements of it: these say all.
bool is_told_by_elements(const std::string& key, const std::string& value, const FlatConfig& other) {
  return value == kEmptyList &&
         std::ranges::any_of(other, [&key](const auto& entry) { return entry.first.starts_with(key + "."); });
}

}  // namespace

std::vector<ConfigDifference> config_differences(std::string_view before_yaml, std::string_view after_yaml) {
  const FlatConfig before = flatten_yaml(before_yaml, "config before");
  const FlatConfig after = flatten_yaml(after_yaml, "config after");
  std::vector<ConfigDifference> differences;
  for (const auto& [key, value] : before) {
    if (is_told_by_elements(key, value, after)) continue;
    const std::string* other = find_value(after, key);
    if (other == nullptr || *other != value) differences.push_back({key, value, other ? *other : kAbsent});
  }
  for (const auto& [key, value] : after) {
    if (is_told_by_elements(key, value, before)) continue;
    if (find_value(before, key) == nullptr) differences.push_back({key, kAbsent, value});
  }
  return differences;
}

std::vector<ConfigDifference> without_new_defaults(std::vector<ConfigDifference> differences,
                                                   std::string_view defaults_yaml) {
  const FlatConfig defaults = flatten_yaml(defaults_yaml, "defaults");
  std::erase_if(differences, [&defaults](const ConfigDifference& difference) {
    const std::string* value = find_value(defaults, difference.key);
    return difference.before == kAbsent && value != nullptr && *value == difference.after;
  });
  return differences;
}

std::string describe_differences(const std::vector<ConfigDifference>& differences) {
  std::string text;
  for (const ConfigDifference& difference : differences) {
    text += fmt::format("{}  {}: {} -> {}", text.empty() ? "" : "\n", difference.key, difference.before,
                        difference.after);
  }
  return text;
}

}  // namespace smoe
