// The visitors that read, write and describe config structs. config_fields.h has what a struct uses to
// declare its fields, config.h says how the parts work together.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "smoe/core/config_fields.h"
#include "smoe/core/config_problems.h"

namespace smoe::detail {

// ---- Reading --------------------------------------------------------------------------------

// One value and what a problem message about it needs.
struct ReadPlace {
  const ConfigNode& node;
  const std::string& path;
  ConfigProblems& problems;
};

void read_scalar(const ReadPlace& place, bool& value, const Range& range);
void read_scalar(const ReadPlace& place, int64_t& value, const Range& range);
void read_scalar(const ReadPlace& place, double& value, const Range& range);
void read_scalar(const ReadPlace& place, std::string& value, const Range& range);
// The index of the name found, or -1 after adding a problem.
int read_enum_index(const ReadPlace& place, const EnumNameList& names);
// Null or the plain word `auto`.
bool means_auto(const ConfigNode& node);
// Adds a problem unless the node is a list.
bool expect_sequence(const ReadPlace& place);
std::string element_path(const std::string& path, size_t index);

template <class T>
void read_struct(const ConfigNode& node, const std::string& path, T& config, ConfigProblems& problems);

template <class T>
void read_value(const ReadPlace& place, T& value, const Range& range) {
  if constexpr (PlainScalar<T>) {
    read_scalar(place, value, range);
  } else if constexpr (std::is_enum_v<T>) {
    const int index = read_enum_index(place, enum_name_list<T>());
    if (index >= 0) value = EnumNames<T>::values[static_cast<size_t>(index)].first;
  } else if constexpr (IsOptional<T>::value) {
    value.reset();
    if (!means_auto(place.node)) read_value(place, value.emplace(), range);
  } else if constexpr (IsVector<T>::value) {
    if (!expect_sequence(place)) return;
    value.clear();
    for (size_t i = 0; i < place.node.sequence.size(); ++i) {
      const std::string path = element_path(place.path, i);
      typename T::value_type element{};
      read_value(ReadPlace{place.node.sequence[i], path, place.problems}, element, range);
      value.push_back(std::move(element));
    }
  } else {
    read_struct(place.node, place.path, value, place.problems);
  }
}

// Runs the checks of a value that no source mentions: its defaults must fit together as well.
template <class T>
void read_absent(const ConfigMark& mark, const std::string& path, T& value, ConfigProblems& problems) {
  if constexpr (IsVector<T>::value) {
    for (size_t i = 0; i < value.size(); ++i) {
      // std::vector<bool> has no elements to refer to, and scalars have no checks of their own.
      if constexpr (!ConfigScalar<typename T::value_type>) {
        read_absent(mark, element_path(path, i), value[i], problems);
      }
    }
  } else if constexpr (!ConfigScalar<T> && !IsOptional<T>::value) {
    ConfigNode empty;
    empty.mark = mark;
    empty.kind = ConfigNodeKind::kMapping;
    read_struct(empty, path, value, problems);
  }
}

class ReadVisitor {
 public:
  // `node` must be a mapping.
  ReadVisitor(const ConfigNode& node, const std::string& path, ConfigProblems& problems)
      : node_(node), path_(path), problems_(problems) {}

  template <class T>
  void field(std::string_view name, T& value, std::string_view /*meaning*/, const Range& range = {}) {
    known_keys_.emplace_back(name);
    const std::string path = join_config_path(path_, name);
    if (const ConfigNode* child = node_.find(name)) {
      read_value(ReadPlace{*child, path, problems_}, value, range);
    } else {
      read_absent(node_.mark, path, value, problems_);
    }
  }

  // Adds a problem for every key that no field asked for.
  void report_unknown_keys() const;

 private:
  const ConfigNode& node_;
  const std::string& path_;
  ConfigProblems& problems_;
  std::vector<std::string> known_keys_;
};

// Only collects the names of the fields of a struct.
class NameVisitor {
 public:
  template <class T>
  void field(std::string_view name, T& /*value*/, std::string_view /*meaning*/, const Range& /*range*/ = {}) {
    names_.emplace_back(name);
  }
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<std::string> names_;
};

void report_not_a_mapping(const ReadPlace& place, const std::vector<std::string>& allowed);

template <class T>
void read_struct(const ConfigNode& node, const std::string& path, T& config, ConfigProblems& problems) {
  const size_t problems_before = problems.size();
  if (node.kind != ConfigNodeKind::kMapping) {
    NameVisitor names;
    visit_fields(names, config);
    report_not_a_mapping(ReadPlace{node, path, problems}, names.names());
    return;
  }
  ReadVisitor reader(node, path, problems);
  visit_fields(reader, config);
  reader.report_unknown_keys();
  if constexpr (HasValidate<T>) {
    if (problems.size() == problems_before && !problems.incomplete()) {
      const ConfigProblems::Scope scope(problems, node, path);
      validate(std::as_const(config), problems);
    }
  }
}

// ---- Writing --------------------------------------------------------------------------------

std::string scalar_text(bool value);
std::string scalar_text(int64_t value);
std::string scalar_text(double value);              // the shortest that reads back exactly, as a float
std::string scalar_text(const std::string& value);  // quoted where YAML would read something else

// Without the ".0" that tells other YAML readers that a number is no integer.
std::string shortest_text(double value);

// A scalar, an optional or a list of scalars on one line.
template <class T>
std::string inline_text(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return std::string(enum_to_name(value));
  } else if constexpr (IsOptional<T>::value) {
    return value ? inline_text(*value) : "auto";
  } else if constexpr (IsVector<T>::value) {
    std::string text = "[";
    for (size_t i = 0; i < value.size(); ++i) {
      const typename T::value_type element = value[i];
      text += (i == 0 ? "" : ", ") + inline_text(element);
    }
    return text + "]";
  } else {
    return scalar_text(value);
  }
}

// True for the field types that are written on one line.
template <class T>
constexpr bool is_inline() {
  if constexpr (IsOptional<T>::value) {
    return true;
  } else if constexpr (IsVector<T>::value) {
    return ConfigScalar<typename T::value_type>;
  } else {
    return ConfigScalar<T>;
  }
}

// Block YAML, two spaces a level.
class YamlWriter {
 public:
  // `key: value` or, with an empty value, `key:`, followed by `  # comment` unless that is empty.
  void line(std::string_view key, std::string_view value, std::string_view comment = "");
  void indent() { ++depth_; }
  void outdent() { --depth_; }
  // The next line starts a list item; the item's further lines are indented to match.
  void begin_item() { item_starts_ = true; }
  // Lines become comments until the matching end: they show what could be written there.
  void begin_comment() { comment_depth_ = depth_; }
  void end_comment() { comment_depth_ = -1; }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  int depth_ = 0;
  bool item_starts_ = false;
  int comment_depth_ = -1;  // where the comment marks stand; -1 outside comments
};

class DumpVisitor {
 public:
  template <class T>
  void field(std::string_view name, T& value, std::string_view /*meaning*/, const Range& /*range*/ = {}) {
    if constexpr (is_inline<T>()) {
      writer_.line(name, inline_text(value));
    } else if constexpr (IsVector<T>::value) {
      writer_.line(name, value.empty() ? "[]" : "");
      for (auto& element : value) write_item(element);
    } else {
      writer_.line(name, "");
      write_nested(value);
    }
  }
  const std::string& text() const { return writer_.text(); }

 private:
  template <class T>
  void write_nested(T& value) {
    writer_.indent();
    visit_fields(*this, value);
    writer_.outdent();
  }
  template <class T>
  void write_item(T& value) {
    writer_.indent();
    writer_.begin_item();
    write_nested(value);
    writer_.outdent();
  }

  YamlWriter writer_;
};

// ---- Describing -----------------------------------------------------------------------------

std::string names_text(const EnumNameList& names);
// "integer" becomes "integers".
std::string plural(std::string type);

// "integer", "one of: a, b", "list of numbers or auto", ...
template <class T>
std::string type_text() {
  if constexpr (std::same_as<T, bool>) {
    return "true or false";
  } else if constexpr (std::same_as<T, int64_t>) {
    return "integer";
  } else if constexpr (std::same_as<T, double>) {
    return "number";
  } else if constexpr (std::same_as<T, std::string>) {
    return "text";
  } else if constexpr (std::is_enum_v<T>) {
    return names_text(enum_name_list<T>());
  } else if constexpr (IsOptional<T>::value) {
    return type_text<typename T::value_type>() + " or auto";
  } else if constexpr (IsVector<T>::value) {
    return "list of " + plural(type_text<typename T::value_type>());
  } else {
    return "mapping";
  }
}

std::string field_comment(std::string type, const Range& range, std::string_view meaning);

class DescribeVisitor {
 public:
  template <class T>
  void field(std::string_view name, T& value, std::string_view meaning, const Range& range = {}) {
    const std::string comment = commented_ ? field_comment(type_text<T>(), range, meaning) : "";
    if constexpr (is_inline<T>()) {
      writer_.line(name, inline_text(value), comment);
    } else if constexpr (IsVector<T>::value) {
      writer_.line(name, value.empty() ? "[]" : "", comment);
      write_items(value);
    } else {
      writer_.line(name, "", commented_ ? meaning : "");
      write_nested(value);
    }
  }
  const std::string& text() const { return writer_.text(); }

 private:
  template <class T>
  void write_nested(T& value) {
    writer_.indent();
    visit_fields(*this, value);
    writer_.outdent();
  }

  // The first item explains its keys; an empty list shows a commented item.
  template <class T>
  void write_items(std::vector<T>& items) {
    const bool outer = commented_;
    writer_.indent();
    if (items.empty() && outer) {
      T example{};
      writer_.begin_comment();
      writer_.begin_item();
      write_nested(example);
      writer_.end_comment();
    }
    for (T& item : items) {
      writer_.begin_item();
      write_nested(item);
      commented_ = false;
    }
    commented_ = outer;
    writer_.outdent();
  }

  YamlWriter writer_;
  bool commented_ = true;
};

std::string hash_text(const std::string& text);

}  // namespace smoe::detail
