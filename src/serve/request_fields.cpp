#include "request_fields.h"

#include <algorithm>
#include <limits>

#include "smoe/serve/api_error.h"

namespace smoe {
namespace {

constexpr size_t kQuotedBytes = 100;

// For messages: a client may send anything, of any length.
std::string quoted(const nlohmann::json& value) {
  std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (text.size() > kQuotedBytes) text = fmt::format("a JSON {}", value.type_name());
  return text;
}

}  // namespace

RequestFields::RequestFields(const nlohmann::json& body, std::string prefix)
    : body_(body), prefix_(std::move(prefix)) {
  if (body.is_object()) return;
  const std::string where = prefix_.empty() ? "the body" : prefix_.substr(0, prefix_.size() - 1);
  throw ApiError(400, "invalid_value", fmt::format("{} is {} instead of a JSON object", where, quoted(body)),
                 prefix_.empty() ? "" : where);
}

const nlohmann::json* RequestFields::find(const std::string& name) const {
  const auto found = body_.find(name);
  return found == body_.end() || found->is_null() ? nullptr : &*found;
}

const nlohmann::json& RequestFields::require(const std::string& name) const {
  const nlohmann::json* value = find(name);
  if (value == nullptr)
    throw ApiError(400, "missing_field", fmt::format("the field {} is missing", path(name)), path(name));
  return *value;
}

std::optional<std::string> RequestFields::text(const std::string& name) const {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string())
    throw bad_field(path(name), fmt::format("found {} instead of a text", quoted(*value)));
  return value->get<std::string>();
}

std::optional<double> RequestFields::number(const std::string& name) const {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) {
    throw bad_field(path(name), fmt::format("found {} instead of a number", quoted(*value)));
  }
  return value->get<double>();
}

std::optional<int64_t> RequestFields::integer(const std::string& name, int64_t least) const {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return std::nullopt;
  const bool fits = value->is_number_integer() &&
                    (!value->is_number_unsigned() ||
                     value->get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
  if (!fits) throw bad_field(path(name), fmt::format("found {} instead of a 64-bit integer", quoted(*value)));
  const auto number = value->get<int64_t>();
  if (number < least)
    throw bad_field(path(name), fmt::format("found {}; it must be at least {}", number, least));
  return number;
}

bool RequestFields::flag(const std::string& name) const {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return false;
  if (!value->is_boolean()) {
    throw bad_field(path(name), fmt::format("found {} instead of true or false", quoted(*value)));
  }
  return value->get<bool>();
}

std::vector<std::string> RequestFields::texts(const std::string& name, size_t most) const {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return {};
  std::vector<std::string> texts;
  const nlohmann::json list = value->is_array() ? *value : nlohmann::json::array({*value});
  for (const nlohmann::json& item : list) {
    if (!item.is_string() || item.get_ref<const std::string&>().empty()) {
      throw bad_field(path(name), fmt::format("found {} instead of a text that is not empty", quoted(item)));
    }
    texts.push_back(item.get<std::string>());
  }
  if (texts.size() > most) {
    throw bad_field(path(name), fmt::format("found {} texts; at most {} are allowed", texts.size(), most));
  }
  return texts;
}

void RequestFields::refuse_unless(const std::string& name, const std::vector<nlohmann::json>& allowed) const {
  const nlohmann::json* value = find(name);
  if (value == nullptr || std::ranges::find(allowed, *value) != allowed.end()) return;
  std::string alternative;
  for (const nlohmann::json& item : allowed) alternative += (alternative.empty() ? "" : " or ") + item.dump();
  throw ApiError(400, "unsupported_field",
                 fmt::format("{}: this server does not support it (found {}); leave it out{}", path(name),
                             quoted(*value), alternative.empty() ? "" : ", or give " + alternative),
                 path(name));
}

}  // namespace smoe
