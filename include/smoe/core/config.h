// Reads plain config structs from YAML, strictly, and writes them back.
//
// A config struct declares its fields once, in a function found by argument-dependent lookup:
//
//   struct ScheduleConfig {
//     ScheduleKind kind = ScheduleKind::kCosine;
//     int64_t warmup_steps = 100;
//   };
//   template <class Visitor>
//   void visit_fields(Visitor& visitor, ScheduleConfig& config) {
//     visitor.field("kind", config.kind, "shape after the warm-up");
//     visitor.field("warmup_steps", config.warmup_steps, "steps of linear warm-up from 0", at_least(0));
//   }
//
// That list alone drives reading, writing, the description of all keys and the hash. Field types:
// bool, int64_t, double, std::string, enums with EnumNames, std::optional of those (YAML null or the
// word `auto` reads as nullopt), std::vector of scalars or structs, and nested structs. An optional
// cross-field check is declared the same way:
//
//   void validate(const ScheduleConfig& config, ConfigProblems& problems);
//
// Files: a top-level key `include: base.yaml` (or a list) names files, relative to the file that
// holds it, whose keys are read first; mappings merge key by key, everything else is replaced.
// Overrides `a.b=value` come last; the value is parsed as YAML; `a.0.b=v` reaches into a list.
// All problems of all sources (syntax, unknown or duplicate keys, types, ranges, cross-field) are
// collected and thrown as one ConfigError: file:line:column, dotted path, what was found, what is
// allowed, the nearest key.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "smoe/core/config_visitors.h"
#include "smoe/core/error.h"

namespace smoe {

// Where a config comes from. An empty `file` means defaults plus overrides.
struct ConfigSource {
  std::filesystem::path file;
  std::vector<std::string> overrides;  // "a.b=value", applied in order
};

// Reads a config of type T. Throws ConfigError listing every problem found.
template <class T>
T read_config(const ConfigSource& source) {
  ConfigProblems problems;
  const ConfigNode root = load_config_tree(source, problems);
  T config;
  detail::read_struct(root, "", config, problems);
  problems.throw_if_any(source.file.string());
  return config;
}

// Reads a config from YAML in memory; `label` stands for the file in messages. Throws ConfigError.
template <class T>
T config_from_yaml(std::string_view yaml, const std::string& label) {
  ConfigProblems problems;
  const ConfigNode root = parse_config_tree(yaml, label, problems);
  T config;
  detail::read_struct(root, "", config, problems);
  problems.throw_if_any(label);
  return config;
}

// Reads the subtree under the top-level key `section` of a YAML file and ignores its other sections:
// a model needs only the `model` part of a run's config. Throws ConfigError.
template <class T>
T read_section(const std::filesystem::path& path, const std::string& section) {
  ConfigProblems problems;
  const ConfigNode root = load_config_tree({path, {}}, problems);
  T config;
  if (const ConfigNode* node = find_config_section(root, section, problems)) {
    detail::read_struct(*node, section, config, problems);
  }
  problems.throw_if_any(path.string());
  return config;
}

// The resolved config as YAML: every key, in declaration order. Reading it back gives an equal config.
template <class T>
std::string dump_config(const T& config) {
  detail::DumpVisitor dump;
  T copy = config;
  visit_fields(dump, copy);
  return dump.text();
}

// Every key with its type, default, range and meaning, as commented YAML (for --print-config).
template <class T>
std::string describe_config() {
  detail::DescribeVisitor describe;
  T defaults;
  visit_fields(describe, defaults);
  return describe.text();
}

// SHA-256 of the resolved YAML, as lower-case hex.
template <class T>
std::string config_hash(const T& config) {
  return detail::hash_text(dump_config(config));
}

}  // namespace smoe
