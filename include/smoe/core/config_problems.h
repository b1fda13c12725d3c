// The parsed form of a config before it has a type: a tree of nodes that remember where they were
// written, and the list of everything that is wrong with it. Config structs meet this header only
// in their `validate` function, which adds problems.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace smoe {

struct ConfigSource;

// A place in a source. `line` and `column` count from 1; line 0 means that only `file` is known,
// which is then a label such as `--set model.dim`.
struct ConfigMark {
  std::string file;
  int line = 0;
  int column = 0;
  // "file:line:column", "file", or "" where nothing is known.
  std::string text() const;
};

enum class ConfigNodeKind { kNull, kScalar, kSequence, kMapping };

struct ConfigEntry;

// A YAML value with its place. Includes and overrides are already merged in, so that the places in
// one tree may lie in several sources.
struct ConfigNode {
  ConfigMark mark;
  ConfigNodeKind kind = ConfigNodeKind::kNull;
  std::string scalar;
  bool quoted = false;  // the scalar was written in quotes: it is text, never a number
  std::vector<ConfigNode> sequence;
  std::vector<ConfigEntry> entries;  // of a mapping, in the order of the source, keys unique

  // The value of `key` in a mapping, or nullptr.
  const ConfigNode* find(std::string_view key) const;
  ConfigEntry* find_entry(std::string_view key);
  const ConfigEntry* find_entry(std::string_view key) const;
  // What an error message calls this value: "`abc`", "a list", "a mapping", "nothing".
  std::string description() const;
};

struct ConfigEntry {
  std::string key;
  ConfigMark mark;
  ConfigNode value;
};

// "model" + "dim" = "model.dim".
std::string join_config_path(std::string_view path, std::string_view key);

// Collects problems, so that all of them can be reported at once.
class ConfigProblems {
 public:
  // A problem of one value. `path` is the dotted path from the root.
  void add(const ConfigMark& mark, const std::string& path, const std::string& message);
  // A cross-field rule that does not hold. Keys are dotted paths relative to the struct that is
  // being validated; the message names both in full, with their places where they are known.
  void add_rule(const std::string& key, const std::string& other_key, const std::string& message);
  // The same for a rule about one key.
  void add_rule(const std::string& key, const std::string& message);

  bool empty() const { return problems_.empty(); }
  size_t size() const { return problems_.size(); }
  // One problem a line, sorted by source and place; overrides come after files.
  std::string text() const;
  // Throws ConfigError with text() if there is a problem. `label` names the config as a whole.
  void throw_if_any(const std::string& label) const;

  // Part of a source could not be read. Cross-field rules would then only repeat that in other words.
  void mark_incomplete() { incomplete_ = true; }
  bool incomplete() const { return incomplete_; }

  // While a Scope lives, add_rule takes its keys relative to `path`, and finds places in `node`.
  class Scope {
   public:
    Scope(ConfigProblems& problems, const ConfigNode& node, std::string path);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    ConfigProblems& problems_;
    const ConfigNode* outer_node_;
    std::string outer_path_;
  };

 private:
  struct Problem {
    ConfigMark mark;
    std::string text;
  };
  ConfigMark mark_in_scope(const std::string& key) const;

  std::vector<Problem> problems_;
  const ConfigNode* scope_node_ = nullptr;
  std::string scope_path_;
  bool incomplete_ = false;
};

// Reads the file and its includes, applies the overrides, and merges all into one tree. Problems of
// syntax, includes, duplicate keys and override paths are added to `problems`. Throws ConfigError
// if the file itself cannot be read.
ConfigNode load_config_tree(const ConfigSource& source, ConfigProblems& problems);

// The same for YAML in memory, which cannot include files.
ConfigNode parse_config_tree(std::string_view yaml, const std::string& label, ConfigProblems& problems);

// The value of a top-level key; nullptr, after adding a problem that lists the keys there are,
// if it is absent.
const ConfigNode* find_config_section(const ConfigNode& root, const std::string& section,
                                      ConfigProblems& problems);

}  // namespace smoe
