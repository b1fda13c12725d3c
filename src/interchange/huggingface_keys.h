// Reads the keys of a config.json one by one and collects everything that is wrong with them. Private to the
// interchange area.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace smoe {

class HuggingFaceKeys {
 public:
  // `prefix` stands before the keys in messages, for example "rope_parameters.".
  HuggingFaceKeys(const nlohmann::json& object, std::vector<std::string>& problems, std::string prefix = "");

  // The value, or nullptr where the key is absent or null. The key counts as known from now on.
  const nlohmann::json* find(std::string_view key);
  // Values that are absent and have no default are a problem and read as 1.
  int64_t integer(std::string_view key, std::optional<int64_t> default_value = std::nullopt);
  double number(std::string_view key, std::optional<double> default_value = std::nullopt);
  bool flag(std::string_view key, bool default_value);
  // Absent, null or one of `allowed`; else a problem that says `why`.
  void require(std::string_view key, const std::vector<nlohmann::json>& allowed, std::string_view why);
  // Keys that do not change what the model computes.
  void ignore(std::initializer_list<std::string_view> keys);
  void add_problem(std::string_view key, const std::string& text);
  // Every key that nothing has asked for is a problem.
  void refuse_unknown(const std::vector<std::string>& ignored);

 private:
  const nlohmann::json& object_;
  std::vector<std::string>& problems_;
  std::string prefix_;
  std::set<std::string, std::less<>> known_;
};

}  // namespace smoe
