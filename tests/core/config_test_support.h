// Config structs with every type of field, and helpers to read them from text.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "smoe/core/config.h"
#include "temporary_folder.h"

namespace smoe {

enum class Metal { kIron, kCopper };
template <>
struct EnumNames<Metal> {
  static constexpr std::array values = {enum_name(Metal::kIron, "iron"), enum_name(Metal::kCopper, "copper")};
};

struct PartConfig {
  std::string name;
  double weight = 1.5;
  std::vector<int64_t> sizes;
};
template <class Visitor>
void visit_fields(Visitor& visitor, PartConfig& config) {
  visitor.field("name", config.name, "label of the part");
  visitor.field("weight", config.weight, "in kg", positive());
  visitor.field("sizes", config.sizes, "in mm", at_least(1));
}
inline void validate(const PartConfig& config, ConfigProblems& problems) {
  if (config.weight > 1000.0) problems.add_rule("weight", "no part is heavier than 1000 kg");
}

struct EngineConfig {
  int64_t cylinders = 4;
  int64_t spark_plugs = 8;
  std::optional<double> limit;
};
template <class Visitor>
void visit_fields(Visitor& visitor, EngineConfig& config) {
  visitor.field("cylinders", config.cylinders, "number of cylinders", between(1, 12));
  visitor.field("spark_plugs", config.spark_plugs, "number of spark plugs", at_least(0));
  visitor.field("limit", config.limit, "turns a second; auto: from the cylinders", between(0.0, 200.0));
}
inline void validate(const EngineConfig& config, ConfigProblems& problems) {
  if (config.spark_plugs % config.cylinders != 0) {
    problems.add_rule("spark_plugs", "cylinders", "every cylinder needs as many plugs");
  }
}

struct MachineConfig {
  bool fast = false;
  int64_t count = 3;
  double ratio = 0.1;
  std::string title = "a machine";
  Metal metal = Metal::kIron;
  std::optional<std::string> owner;
  std::optional<Metal> coating;
  std::optional<std::vector<double>> levels;
  std::vector<std::string> tags = {"red", "true"};
  std::vector<PartConfig> parts;
  EngineConfig engine;
};
template <class Visitor>
void visit_fields(Visitor& visitor, MachineConfig& config) {
  visitor.field("fast", config.fast, "whether it is fast");
  visitor.field("count", config.count, "how many", at_least(0));
  visitor.field("ratio", config.ratio, "a share", between(0.0, 1.0));
  visitor.field("title", config.title, "what it is called");
  visitor.field("metal", config.metal, "what it is made of");
  visitor.field("owner", config.owner, "who has it");
  visitor.field("coating", config.coating, "what covers it");
  visitor.field("levels", config.levels, "oil levels", at_least(0.0));
  visitor.field("tags", config.tags, "words about it");
  visitor.field("parts", config.parts, "what it consists of");
  visitor.field("engine", config.engine, "what drives it");
}

inline MachineConfig machine_from(const std::string& yaml) {
  return config_from_yaml<MachineConfig>(yaml, "m.yaml");
}

// The message of the ConfigError that `action` throws, or "" if it throws none.
template <class Action>
std::string config_error(const Action& action) {
  try {
    action();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

inline std::string error_of(const std::string& yaml) {
  return config_error([&] { machine_from(yaml); });
}

inline std::string error_of(const ConfigSource& source) {
  return config_error([&] { read_config<MachineConfig>(source); });
}

}  // namespace smoe
