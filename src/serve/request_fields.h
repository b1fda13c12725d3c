// Reads the fields of a request one by one; every error names its field. A field that is null counts as
// absent, because clients write out their defaults so.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace smoe {

class RequestFields {
 public:
  // Throws ApiError unless `body` is an object. `body` must outlive the reader; `prefix` stands before the
  // names in errors.
  explicit RequestFields(const nlohmann::json& body, std::string prefix = "");

  // Null where the field is absent.
  const nlohmann::json* find(const std::string& name) const;
  const nlohmann::json& require(const std::string& name) const;

  std::optional<std::string> text(const std::string& name) const;
  std::optional<double> number(const std::string& name) const;
  std::optional<int64_t> integer(const std::string& name, int64_t least) const;
  bool flag(const std::string& name) const;  // false where absent
  // A text or a list of at most `most` texts, none empty.
  std::vector<std::string> texts(const std::string& name, size_t most) const;

  // Refuses the field unless it is absent or equals one of `allowed`.
  void refuse_unless(const std::string& name, const std::vector<nlohmann::json>& allowed) const;

 private:
  std::string path(const std::string& name) const { return prefix_ + name; }

  const nlohmann::json& body_;
  std::string prefix_;
};

}  // namespace smoe
