#include "ifeval_arguments.h"

#include "smoe/core/error.h"

namespace smoe {
namespace {

// Truth of a value in Python.
bool is_given(const nlohmann::json& value) {
  if (value.is_null()) return false;
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number()) return value.get<double>() != 0.0;
  if (value.is_string()) return !value.get_ref<const std::string&>().empty();
  return !value.empty();
}

}  // namespace

IfevalArguments::IfevalArguments(const nlohmann::json& values, std::string where)
    : values_(values), where_(std::move(where)) {
  SMOE_CHECK(DataError, values.is_object(), "{}: its kwargs are {} and must be an object", where_,
             values.dump());
}

void IfevalArguments::fail(const std::string& name, const std::string& found,
                           const std::string& allowed) const {
  throw DataError(fmt::format("{}: the argument \"{}\" is {}; it must be {}. Correct the row.", where_, name,
                              found, allowed));
}

const nlohmann::json& IfevalArguments::get(const std::string& name, const std::string& allowed) const {
  const auto found = values_.find(name);
  if (found == values_.end()) fail(name, "missing", allowed);
  if (!is_given(*found)) fail(name, found->dump() + ", which counts as missing", allowed);
  return *found;
}

std::string IfevalArguments::text(const std::string& name) const {
  const nlohmann::json& value = get(name, "a text");
  if (!value.is_string()) fail(name, value.dump(), "a text");
  return value.get<std::string>();
}

std::vector<std::string> IfevalArguments::texts(const std::string& name) const {
  static const std::string kAllowed = "a list of texts";
  const nlohmann::json& value = get(name, kAllowed);
  if (!value.is_array()) fail(name, value.dump(), kAllowed);
  std::vector<std::string> result;
  for (const nlohmann::json& entry : value) {
    if (!entry.is_string()) fail(name, value.dump(), kAllowed);
    result.push_back(entry.get<std::string>());
  }
  return result;
}

int64_t IfevalArguments::positive(const std::string& name) const {
  static const std::string kAllowed = "a whole number of at least 1";
  const nlohmann::json& value = get(name, kAllowed);
  if (!value.is_number()) fail(name, value.dump(), kAllowed);
  // Data frames turn whole numbers into floating-point ones beside missing values.
  const auto number = value.get<double>();
  const auto whole = static_cast<int64_t>(number);
  if (static_cast<double>(whole) != number || whole < 1) fail(name, value.dump(), kAllowed);
  return whole;
}

bool IfevalArguments::is_at_least(const std::string& name) const {
  const std::string relation = text(name);
  if (relation == "at least") return true;
  if (relation != "less than") fail(name, '"' + relation + '"', "\"at least\" or \"less than\"");
  return false;
}

}  // namespace smoe
