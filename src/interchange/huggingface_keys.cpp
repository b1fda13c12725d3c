#include "huggingface_keys.h"

#include <fmt/format.h>

#include <algorithm>

namespace smoe {
namespace {

// Long values (lists of layers, quantisation settings) are cut in messages.
std::string shown(const nlohmann::json& value) {
  constexpr size_t kMaxLength = 120;
  const std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return text.size() <= kMaxLength ? text : text.substr(0, kMaxLength) + "...";
}

}  // namespace

HuggingFaceKeys::HuggingFaceKeys(const nlohmann::json& object, std::vector<std::string>& problems,
                                 std::string prefix)
    : object_(object), problems_(problems), prefix_(std::move(prefix)) {}

const nlohmann::json* HuggingFaceKeys::find(std::string_view key) {
  known_.emplace(key);
  const auto found = object_.find(std::string(key));
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

int64_t HuggingFaceKeys::integer(std::string_view key, std::optional<int64_t> default_value) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) {
    if (!default_value) add_problem(key, "is missing; a whole number of at least 1 is needed");
    return default_value.value_or(1);
  }
  // Larger numbers are damage, and would overflow the products that are taken of them.
  constexpr int64_t kMax = int64_t{1} << 40;
  if (!value->is_number_integer() || *value < 1 || *value > kMax) {
    add_problem(key, fmt::format("is {}; a whole number of at least 1 is needed", shown(*value)));
    return 1;
  }
  return value->get<int64_t>();
}

double HuggingFaceKeys::number(std::string_view key, std::optional<double> default_value) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) {
    if (!default_value) add_problem(key, "is missing; a positive number is needed");
    return default_value.value_or(1.0);
  }
  if (!value->is_number() || !(value->get<double>() > 0.0)) {
    add_problem(key, fmt::format("is {}; a positive number is needed", shown(*value)));
    return 1.0;
  }
  return value->get<double>();
}

bool HuggingFaceKeys::flag(std::string_view key, bool default_value) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return default_value;
  if (!value->is_boolean()) {
    add_problem(key, fmt::format("is {}; true or false is needed", shown(*value)));
    return default_value;
  }
  return value->get<bool>();
}

void HuggingFaceKeys::require(std::string_view key, const std::vector<nlohmann::json>& allowed,
                              std::string_view why) {
  const nlohmann::json* value = find(key);
  if (value == nullptr || std::ranges::find(allowed, *value) != allowed.end()) return;
  std::string list;
  for (const nlohmann::json& one : allowed) list += (list.empty() ? "" : " or ") + one.dump();
  add_problem(key, fmt::format("is {}; allowed is {}{}: {}", shown(*value), list,
                               list.empty() ? "only null" : "", why));
}

void HuggingFaceKeys::ignore(std::initializer_list<std::string_view> keys) {
  known_.insert(keys.begin(), keys.end());
}

void HuggingFaceKeys::add_problem(std::string_view key, const std::string& text) {
  problems_.push_back(fmt::format("{}{} {}", prefix_, key, text));
}

void HuggingFaceKeys::refuse_unknown(const std::vector<std::string>& ignored) {
  for (const auto& [key, value] : object_.items()) {
    if (known_.contains(key) || std::ranges::find(ignored, key) != ignored.end()) continue;
    add_problem(key, fmt::format("is {}; this key is not known, and it may change what the model computes. "
                                 "If it does not, name it with --ignore-config-key {}",
                                 shown(value), key));
  }
}

}  // namespace smoe
