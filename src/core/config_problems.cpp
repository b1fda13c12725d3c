#include "smoe/core/config_problems.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <tuple>
#include <utility>

#include "smoe/core/error.h"

namespace smoe {
namespace {

// The entry of the last key on a dotted path whose entry exists; nullptr if not even the first does.
const ConfigMark* find_mark(const ConfigNode& root, std::string_view path) {
  const ConfigNode* node = &root;
  const ConfigMark* mark = nullptr;
  while (!path.empty()) {
    const size_t dot = path.find('.');
    const std::string_view key = path.substr(0, dot);
    path = dot == std::string_view::npos ? std::string_view() : path.substr(dot + 1);
    if (node->kind == ConfigNodeKind::kSequence) {
      size_t index = 0;
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), index);
      if (error != std::errc() || end != key.data() + key.size() || index >= node->sequence.size())
        return mark;
      node = &node->sequence[index];
      mark = &node->mark;
    } else {
      const ConfigEntry* entry = node->find_entry(key);
      if (entry == nullptr) return nullptr;
      node = &entry->value;
      mark = &entry->mark;
    }
  }
  return mark;
}

}  // namespace

std::string ConfigMark::text() const {
  return line == 0 ? file : fmt::format("{}:{}:{}", file, line, column);
}

const ConfigEntry* ConfigNode::find_entry(std::string_view key) const {
  const auto found =
      std::ranges::find_if(entries, [&](const ConfigEntry& entry) { return entry.key == key; });
  return found == entries.end() ? nullptr : &*found;
}

ConfigEntry* ConfigNode::find_entry(std::string_view key) {
  return const_cast<ConfigEntry*>(std::as_const(*this).find_entry(key));
}

const ConfigNode* ConfigNode::find(std::string_view key) const {
  const ConfigEntry* entry = find_entry(key);
  return entry == nullptr ? nullptr : &entry->value;
}

std::string ConfigNode::description() const {
  switch (kind) {
    case ConfigNodeKind::kNull:
      return "nothing (null)";
    case ConfigNodeKind::kScalar:
      return quoted ? fmt::format("the quoted text \"{}\"", scalar) : fmt::format("`{}`", scalar);
    case ConfigNodeKind::kSequence:
      return "a list";
    case ConfigNodeKind::kMapping:
      return "a mapping";
  }
  return "something unknown";
}

std::string join_config_path(std::string_view path, std::string_view key) {
  return path.empty() ? std::string(key) : fmt::format("{}.{}", path, key);
}

void ConfigProblems::add(const ConfigMark& mark, const std::string& path, const std::string& message) {
  problems_.push_back({mark, path.empty() ? message : fmt::format("{}: {}", path, message)});
}

ConfigMark ConfigProblems::mark_in_scope(const std::string& key) const {
  const ConfigMark* mark = scope_node_ == nullptr ? nullptr : find_mark(*scope_node_, key);
  return mark == nullptr ? ConfigMark() : *mark;
}

void ConfigProblems::add_rule(const std::string& key, const std::string& other_key,
                              const std::string& message) {
  ConfigMark mark = mark_in_scope(key);
  ConfigMark other_mark = mark_in_scope(other_key);
  const std::string path = join_config_path(scope_path_, key);
  const std::string other_path = join_config_path(scope_path_, other_key);
  std::string text = fmt::format("{} and {}: {}", path, other_path, message);
  // The line starts with a place that the user wrote; the other key is at its default, or named after.
  if (mark.file.empty()) {
    mark = other_mark;
  } else if (!other_mark.file.empty()) {
    text += fmt::format(" ({} is set at {})", other_path, other_mark.text());
  }
  problems_.push_back({mark, text});
}

void ConfigProblems::add_rule(const std::string& key, const std::string& message) {
  add(mark_in_scope(key), join_config_path(scope_path_, key), message);
}

std::string ConfigProblems::text() const {
  std::vector<Problem> sorted = problems_;
  std::ranges::stable_sort(sorted, {}, [](const Problem& problem) {
    const ConfigMark& mark = problem.mark;
    return std::tuple(mark.line == 0, mark.file, mark.line, mark.column);
  });
  std::string text;
  for (const Problem& problem : sorted) {
    const std::string place = problem.mark.text();
    text += (text.empty() ? "" : "\n") + (place.empty() ? "" : place + ": ") + problem.text;
  }
  return text;
}

void ConfigProblems::throw_if_any(const std::string& label) const {
  if (problems_.empty()) return;
  if (problems_.size() == 1) throw ConfigError(text());
  throw ConfigError(fmt::format("{} problems in {}:\n{}", problems_.size(),
                                label.empty() ? "the configuration" : label, text()));
}

ConfigProblems::Scope::Scope(ConfigProblems& problems, const ConfigNode& node, std::string path)
    : problems_(problems), outer_node_(problems.scope_node_), outer_path_(std::move(problems.scope_path_)) {
  problems_.scope_node_ = &node;
  problems_.scope_path_ = std::move(path);
}

ConfigProblems::Scope::~Scope() {
  problems_.scope_node_ = outer_node_;
  problems_.scope_path_ = std::move(outer_path_);
}

}  // namespace smoe
