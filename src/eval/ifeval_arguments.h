// The arguments of one IFEval instruction (internal to the checkers).
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace smoe {

class IfevalArguments {
 public:
  // `where` names the row and the instruction in messages. Keeps a reference to `values`.
  IfevalArguments(const nlohmann::json& values, std::string where);

  // All of these throw DataError if the argument is missing (or null, 0, false, empty) or of another type.
  std::string text(const std::string& name) const;
  std::vector<std::string> texts(const std::string& name) const;
  int64_t positive(const std::string& name) const;
  // Whether the relation is "at least"; the only other one is "less than".
  bool is_at_least(const std::string& name) const;

  [[noreturn]] void fail(const std::string& name, const std::string& found, const std::string& allowed) const;

 private:
  const nlohmann::json& get(const std::string& name, const std::string& allowed) const;

  const nlohmann::json& values_;
  std::string where_;
};

}  // namespace smoe
