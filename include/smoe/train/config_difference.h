// Names the keys in which two resolved configs differ.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace smoe {

struct ConfigDifference {
  std::string key;     // dotted path, for example model.num_experts
  std::string before;  // "(absent)" where only the other config has the key
  std::string after;
};

// Compares two dumps key by key, in the order of `before`; keys that only `after` has come last.
std::vector<ConfigDifference> config_differences(std::string_view before_yaml, std::string_view after_yaml);

// Leaves out keys that only the later config has, with their value in `defaults_yaml`: those of a newer
// version that change nothing.
std::vector<ConfigDifference> without_new_defaults(std::vector<ConfigDifference> differences,
                                                   std::string_view defaults_yaml);

// "  model.num_experts: 8 -> 16", one a line.
std::string describe_differences(const std::vector<ConfigDifference>& differences);

}  // namespace smoe
