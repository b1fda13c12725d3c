#include "smoe/eval/ifeval.h"

#include <algorithm>
#include <array>

#include "ifeval_checkers.h"
#include "smoe/core/error.h"
#include "smoe/eval/python_text.h"
#include "smoe/eval/text_filters.h"

namespace smoe {
namespace {

const std::vector<IfevalBuilder>& builders() {
  static const std::vector<IfevalBuilder> all = [] {
    std::vector<IfevalBuilder> result = ifeval_wording_builders();
    for (const auto& more : {ifeval_language_builders(), ifeval_layout_builders()}) {
      result.insert(result.end(), more.begin(), more.end());
    }
    std::ranges::sort(result, {}, &IfevalBuilder::id);
    return result;
  }();
  return all;
}

const IfevalBuilder& find_builder(const std::string& id, const std::string& where) {
  const auto found = std::ranges::find(builders(), id, &IfevalBuilder::id);
  if (found == builders().end()) {
    std::string known;
    for (const IfevalBuilder& builder : builders()) known += fmt::format(" {}", builder.id);
    throw DataError(fmt::format("{}: unknown instruction \"{}\"; known are:{}", where, id, known));
  }
  return *found;
}

const nlohmann::json& field(const nlohmann::json& row, const char* name, nlohmann::json::value_t type,
                            const std::string& where) {
  SMOE_CHECK(DataError, row.is_object() && row.contains(name) && row[name].type() == type,
             "{}: an IFEval row must have the field \"{}\" of type {}", where, name,
             nlohmann::json(type).type_name());
  return row[name];
}

IfevalInstruction build_instruction(const nlohmann::json& id, const nlohmann::json& values,
                                    const std::string& where) {
  SMOE_CHECK(DataError, id.is_string(), "{}: {} is no instruction name", where, id.dump());
  const IfevalBuilder& builder = find_builder(id.get<std::string>(), where);
  const std::string place = fmt::format("{}, instruction {}", where, builder.id);
  try {
    return {{builder.id, builder.needs_outside_model}, builder.build(IfevalArguments(values, place))};
  } catch (const DataError& error) {
    // Errors of expressions do not know the row.
    if (std::string_view(error.what()).starts_with(place)) throw;
    throw DataError(fmt::format("{}: {}", place, error.what()));
  }
}

std::string join_lines(const std::vector<std::string_view>& lines, size_t first, size_t last) {
  std::string text;
  for (size_t i = first; i < last; ++i) {
    if (i > first) text += '\n';
    text += lines[i];
  }
  return std::string(strip(text));
}

std::array<std::string, 8> loose_versions(const std::string& response) {
  const std::vector<std::string_view> lines = split_at(response, "\n");
  const size_t last = lines.size() - 1;
  std::array<std::string, 8> versions = {response, join_lines(lines, 1, last + 1), join_lines(lines, 0, last),
                                         join_lines(lines, 1, last)};
  for (size_t i = 0; i < 4; ++i) versions[i + 4] = replace_each(versions[i], "*", "");
  return versions;
}

bool follows(const IfevalInstruction& instruction, const std::string& text) {
  return !strip(text).empty() && instruction.follows(text);
}

}  // namespace

const std::vector<IfevalKind>& ifeval_kinds() {
  static const std::vector<IfevalKind> kinds = [] {
    std::vector<IfevalKind> result;
    for (const IfevalBuilder& builder : builders()) {
      result.push_back({builder.id, builder.needs_outside_model});
    }
    return result;
  }();
  return kinds;
}

IfevalItem build_ifeval_item(const nlohmann::json& row, const std::string& where) {
  using Type = nlohmann::json::value_t;
  IfevalItem item;
  item.prompt = field(row, "prompt", Type::string, where).get<std::string>();
  const nlohmann::json& ids = field(row, "instruction_id_list", Type::array, where);
  const nlohmann::json& values = field(row, "kwargs", Type::array, where);
  SMOE_CHECK(DataError, row.contains("key") && row["key"].is_number_integer(),
             "{}: an IFEval row must have the field \"key\" of type number", where);
  item.key = row["key"].get<int64_t>();
  const std::string place = fmt::format("{} (key {})", where, item.key);
  SMOE_CHECK(DataError, !ids.empty() && ids.size() == values.size(),
             "{}: it has {} entries in \"instruction_id_list\" and {} in \"kwargs\"; both need one an "
             "instruction, and at least one",
             place, ids.size(), values.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    item.instructions.push_back(build_instruction(ids[i], values[i], place));
  }
  return item;
}

std::vector<IfevalVerdict> check_ifeval(const IfevalItem& item, const std::string& response) {
  SMOE_CHECK(DataError, is_utf8(response), "the response to the IFEval prompt with key {} is not UTF-8",
             item.key);
  const std::array<std::string, 8> versions = loose_versions(response);
  std::vector<IfevalVerdict> verdicts;
  for (const IfevalInstruction& instruction : item.instructions) {
    IfevalVerdict verdict{instruction.kind};
    verdict.strict = follows(instruction, response);
    verdict.loose = std::ranges::any_of(
        versions, [&](const std::string& version) { return follows(instruction, version); });
    verdicts.push_back(verdict);
  }
  return verdicts;
}

}  // namespace smoe
