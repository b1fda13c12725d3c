// Builds the config tree from YAML: positions, includes, merging, overrides.
#include <fmt/ranges.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <sstream>
#include <utility>

#include "smoe/core/config.h"
#include "smoe/core/files.h"

namespace smoe {
namespace {

// Deeper nesting than any config has; a YAML alias can contain itself.
constexpr int kMaxDepth = 32;
// More values than any config has; a dozen aliases of lists of aliases stand for billions.
constexpr int64_t kMaxNodes = 200'000;

// Turns yaml-cpp's nodes of one document into ours.
class TreeBuilder {
 public:
  TreeBuilder(std::string file, bool has_lines, ConfigProblems& problems)
      : file_(std::move(file)), has_lines_(has_lines), problems_(problems) {}

  ConfigNode build(const YAML::Node& yaml, const ConfigMark& fallback, const std::string& path, int depth) {
    ConfigNode node;
    node.mark = mark_of(yaml.Mark(), fallback);
    if (++num_nodes_ > kMaxNodes) {
      if (num_nodes_ == kMaxNodes + 1) {
        problems_.add(node.mark, path, fmt::format("more than {} values, aliases counted", kMaxNodes));
        problems_.mark_incomplete();
      }
    } else if (depth > kMaxDepth) {
      problems_.add(node.mark, path, fmt::format("nested deeper than {} levels", kMaxDepth));
      problems_.mark_incomplete();
    } else if (yaml.IsScalar()) {
      node.kind = ConfigNodeKind::kScalar;
      node.scalar = yaml.Scalar();
      node.quoted = yaml.Tag() == "!";
    } else if (yaml.IsSequence()) {
      node.kind = ConfigNodeKind::kSequence;
      for (const YAML::Node& item : yaml) {
        const std::string item_path = join_config_path(path, fmt::format("{}", node.sequence.size()));
        node.sequence.push_back(build(item, node.mark, item_path, depth + 1));
      }
    } else if (yaml.IsMap()) {
      build_mapping(yaml, path, depth, node);
    }
    return node;
  }

  ConfigMark mark_of(const YAML::Mark& yaml, const ConfigMark& fallback) const {
    if (!has_lines_) return {file_, 0, 0};
    return yaml.is_null() ? fallback : ConfigMark{file_, yaml.line + 1, yaml.column + 1};
  }

 private:
  void build_mapping(const YAML::Node& yaml, const std::string& path, int depth, ConfigNode& node) {
    node.kind = ConfigNodeKind::kMapping;
    for (const auto& pair : yaml) {
      const ConfigMark key_mark = mark_of(pair.first.Mark(), node.mark);
      if (!pair.first.IsScalar()) {
        problems_.add(key_mark, path, "a key must be a plain word");
        continue;
      }
      ConfigEntry entry{pair.first.Scalar(), key_mark, {}};
      const std::string entry_path = join_config_path(path, entry.key);
      entry.value = build(pair.second, key_mark, entry_path, depth + 1);
      if (const ConfigEntry* first = node.find_entry(entry.key)) {
        problems_.add(key_mark, entry_path,
                      fmt::format("the key is set twice; it was set first at {}", first->mark.text()));
        continue;
      }
      node.entries.push_back(std::move(entry));
    }
  }

  std::string file_;
  bool has_lines_;
  ConfigProblems& problems_;
  int64_t num_nodes_ = 0;
};

// Where the first value of each document is.
class DocumentMarks final : public YAML::EventHandler {
 public:
  std::vector<YAML::Mark> marks;

  void OnDocumentStart(const YAML::Mark&) override { at_start_ = true; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { see(mark); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { see(mark); }
  void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t, const std::string&) override {
    see(mark);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    see(mark);
  }
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    see(mark);
  }
  void OnMapEnd() override {}

 private:
  void see(const YAML::Mark& mark) {
    if (at_start_) marks.push_back(mark);
    at_start_ = false;
  }
  bool at_start_ = false;
};

// Of the first two documents. Loading all of them at once would never end where the parser does not get past
// a character: a file that begins with a comma is an endless row of empty documents for it.
std::vector<YAML::Mark> first_document_marks(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  DocumentMarks documents;
  while (documents.marks.size() < 2 && parser.HandleNextDocument(documents)) {
  }
  return documents.marks;
}

// One YAML document as a tree. A document with a syntax error gives an empty mapping and a problem.
ConfigNode parse_document(std::string_view text, const std::string& label, bool has_lines,
                          ConfigProblems& problems) {
  TreeBuilder builder(label, has_lines, problems);
  ConfigNode empty;
  empty.mark = has_lines ? ConfigMark{label, 1, 1} : ConfigMark{label, 0, 0};
  try {
    const std::string owned(text);
    const std::vector<YAML::Mark> documents = first_document_marks(owned);
    if (documents.empty()) return empty;
    if (documents.size() > 1) {
      const bool is_stuck = documents[1].pos == documents[0].pos;
      problems.add(builder.mark_of(documents[1], empty.mark), "",
                   is_stuck ? "YAML syntax: no value begins with this character"
                            : "a second YAML document starts here; a config is one document");
    }
    return builder.build(YAML::Load(owned), empty.mark, "", 0);
  } catch (const YAML::Exception& error) {
    problems.add(builder.mark_of(error.mark, empty.mark), "", fmt::format("YAML syntax: {}", error.msg));
    problems.mark_incomplete();
    empty.kind = ConfigNodeKind::kMapping;
    return empty;
  }
}

// An empty document is a mapping without keys; anything else than a mapping is a problem.
void expect_mapping(ConfigNode& root, ConfigProblems& problems) {
  if (root.kind == ConfigNodeKind::kMapping) return;
  if (root.kind != ConfigNodeKind::kNull) {
    problems.add(root.mark, "", fmt::format("expected `key: value` lines, found {}", root.description()));
    problems.mark_incomplete();
  }
  ConfigNode empty;
  empty.mark = root.mark;
  empty.kind = ConfigNodeKind::kMapping;
  root = std::move(empty);
}

// Mappings merge key by key; everything else replaces what was there.
void merge(ConfigNode& base, ConfigNode&& over) {
  if (base.kind != ConfigNodeKind::kMapping || over.kind != ConfigNodeKind::kMapping) {
    base = std::move(over);
    return;
  }
  base.mark = over.mark;
  for (ConfigEntry& entry : over.entries) {
    if (ConfigEntry* existing = base.find_entry(entry.key)) {
      existing->mark = entry.mark;
      merge(existing->value, std::move(entry.value));
    } else {
      base.entries.push_back(std::move(entry));
    }
  }
}

// Reads a file and, before it, the files it includes.
class FileLoader {
 public:
  explicit FileLoader(ConfigProblems& problems) : problems_(problems) {}

  ConfigNode load(const std::filesystem::path& path, std::string_view text) {
    chain_.push_back(identity(path));
    ConfigNode own = parse_document(text, path.string(), true, problems_);
    expect_mapping(own, problems_);
    ConfigNode merged;
    merged.mark = own.mark;
    merged.kind = ConfigNodeKind::kMapping;
    if (const ConfigNode* include = own.find("include")) {
      for (const ConfigNode& name : include_list(*include)) merge(merged, load_include(path, name));
      std::erase_if(own.entries, [](const ConfigEntry& entry) { return entry.key == "include"; });
    }
    merge(merged, std::move(own));
    chain_.pop_back();
    return merged;
  }

 private:
  static std::filesystem::path identity(const std::filesystem::path& path) {
    std::error_code ignored;
    return std::filesystem::weakly_canonical(path, ignored);
  }

  static std::vector<ConfigNode> include_list(const ConfigNode& include) {
    return include.kind == ConfigNodeKind::kSequence ? include.sequence : std::vector<ConfigNode>{include};
  }

  ConfigNode load_include(const std::filesystem::path& including, const ConfigNode& name) {
    ConfigNode empty;
    empty.mark = name.mark;
    empty.kind = ConfigNodeKind::kMapping;
    if (name.kind != ConfigNodeKind::kScalar) {
      return fail(empty,
                  fmt::format("expected a file name or a list of file names, found {}", name.description()));
    }
    const std::filesystem::path path = (including.parent_path() / name.scalar).lexically_normal();
    if (std::ranges::find(chain_, identity(path)) != chain_.end()) {
      return fail(empty, fmt::format("{} includes itself, directly or through other files", path.string()));
    }
    try {
      return load(path, read_file(path));
    } catch (const DataError& error) {
      return fail(empty,
                  fmt::format("{} (looked up from the folder of {})", error.what(), including.string()));
    }
  }

  ConfigNode fail(const ConfigNode& empty, const std::string& message) {
    problems_.add(empty.mark, "include", message);
    problems_.mark_incomplete();
    return empty;
  }

  ConfigProblems& problems_;
  std::vector<std::filesystem::path> chain_;  // files being read, outermost first
};

// The element of a list that an override's path names; nullptr after adding a problem.
ConfigNode* list_element(ConfigNode& list, const std::string& key, const ConfigMark& mark,
                         const std::string& path, ConfigProblems& problems) {
  size_t index = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), index);
  if (error == std::errc() && end == key.data() + key.size() && index < list.sequence.size()) {
    return &list.sequence[index];
  }
  problems.add(mark, path,
               fmt::format("`{}` is no position in this list; it has {} elements, counted from 0", key,
                           list.sequence.size()));
  return nullptr;
}

// The node at a dotted path, made where it is absent; nullptr after adding a problem.
ConfigNode* node_at(ConfigNode& root, const std::string& dotted, const ConfigMark& mark,
                    ConfigProblems& problems) {
  ConfigNode* node = &root;
  std::string path;
  for (size_t start = 0; start <= dotted.size();) {
    const size_t dot = std::min(dotted.find('.', start), dotted.size());
    const std::string key = dotted.substr(start, dot - start);
    start = dot + 1;
    path = join_config_path(path, key);
    if (node->kind == ConfigNodeKind::kSequence) {
      node = list_element(*node, key, mark, path, problems);
      if (node == nullptr) return nullptr;
      continue;
    }
    if (node->kind != ConfigNodeKind::kMapping) {
      // A null or scalar gives way: the reader reports it if the key has no keys below it.
      *node = ConfigNode();
      node->mark = mark;
      node->kind = ConfigNodeKind::kMapping;
    }
    if (node->find_entry(key) == nullptr) node->entries.push_back({key, mark, {}});
    ConfigEntry* entry = node->find_entry(key);
    if (start > dotted.size()) entry->mark = mark;
    node = &entry->value;
    if (node->mark.file.empty()) node->mark = mark;
  }
  return node;
}

void apply_override(const std::string& text, ConfigNode& root, ConfigProblems& problems) {
  const size_t equals = text.find('=');
  const std::string path = text.substr(0, equals);
  const ConfigMark mark{"--set " + path, 0, 0};
  const bool empty_step =
      path.empty() || path.front() == '.' || path.back() == '.' || path.find("..") != std::string::npos;
  if (equals == std::string::npos || empty_step) {
    problems.add({"--set " + text, 0, 0}, "",
                 "expected KEY=VALUE with a dotted key, for example model.dim=256");
    return;
  }
  if (path == "include") {
    problems.add(mark, "", "files are included by a file, not by an override");
    return;
  }
  ConfigNode value = parse_document(text.substr(equals + 1), mark.file, false, problems);
  if (ConfigNode* target = node_at(root, path, mark, problems)) merge(*target, std::move(value));
}

}  // namespace

ConfigNode load_config_tree(const ConfigSource& source, ConfigProblems& problems) {
  ConfigNode root;
  root.kind = ConfigNodeKind::kMapping;
  if (!source.file.empty()) {
    std::string text;
    try {
      text = read_file(source.file);
    } catch (const DataError& error) {
      throw ConfigError(error.what());
    }
    root = FileLoader(problems).load(source.file, text);
  }
  for (const std::string& text : source.overrides) apply_override(text, root, problems);
  return root;
}

ConfigNode parse_config_tree(std::string_view yaml, const std::string& label, ConfigProblems& problems) {
  ConfigNode root = parse_document(yaml, label, true, problems);
  expect_mapping(root, problems);
  return root;
}

const ConfigNode* find_config_section(const ConfigNode& root, const std::string& section,
                                      ConfigProblems& problems) {
  const ConfigNode* node = root.find(section);
  if (node == nullptr && !problems.incomplete()) {
    std::vector<std::string> keys;
    for (const ConfigEntry& entry : root.entries) keys.push_back(entry.key);
    problems.add(root.mark, section, fmt::format("the section is missing; found: {}", fmt::join(keys, ", ")));
  }
  return node;
}

}  // namespace smoe
