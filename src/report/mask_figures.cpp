#include "smoe/report/mask_figures.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/core/json_depth.h"

namespace smoe {
namespace {

using Json = nlohmann::ordered_json;

PairSimilarity read_similarity(const Json& json) {
  return {json.at("within").get<double>(), json.at("across").get<double>(),
          json.at("within_pairs").get<int64_t>(), json.at("across_pairs").get<int64_t>()};
}

Matrix read_matrix(const Json& json, const std::string& where, size_t rows, size_t columns) {
  Matrix matrix = json.get<Matrix>();
  SMOE_CHECK(DataError, matrix.size() == rows && rows > 0, "{} has {} rows, expected {}", where,
             matrix.size(), rows);
  for (const std::vector<double>& row : matrix) {
    SMOE_CHECK(DataError, row.size() == columns && columns > 0, "{} has a row of {} numbers, expected {}",
               where, row.size(), columns);
  }
  return matrix;
}

MaskText read_text(const Json& json) {
  MaskText text;
  text.name = json.at("name").get<std::string>();
  text.topics = json.at("topics").get<std::vector<std::string>>();
  text.segments = read_similarity(json.at("segments"));
  text.cosine = read_matrix(json.at("cosine"), "`cosine` of `" + text.name + "`", text.topics.size(),
                            text.topics.size());
  return text;
}

MaskBudget read_budget(const Json& json) {
  MaskBudget budget;
  budget.name = json.at("name").get<std::string>();
  budget.experts_per_layer = json.at("experts_per_layer").get<int64_t>();
  const Json& between = json.at("between_texts");
  budget.between_texts = read_similarity(between);
  if (!between.at("p_value").is_null()) budget.p_value = between.at("p_value").get<double>();
  if (json.contains("hit_rates")) {
    for (const Json& rate : json.at("hit_rates")) {
      if (rate.at("hit_rate").is_null()) continue;
      budget.hit_rates.emplace_back(rate.at("segment_length").get<double>(),
                                    rate.at("hit_rate").get<double>());
    }
  }
  const Json& load = json.at("load");
  const size_t layers = load.size();
  const size_t experts = layers == 0 ? 0 : load.at(0).size();
  budget.load = read_matrix(load, "`load`", layers, experts);
  for (const auto& [topic, matrix] : json.at("topic_load").items()) {
    budget.topic_loads.emplace_back(topic,
                                    read_matrix(matrix, "`topic_load` of `" + topic + "`", layers, experts));
  }
  for (const Json& text : json.at("texts")) {
    if (text.at("segments").at("across_pairs").get<int64_t>() > 0) budget.texts.push_back(read_text(text));
  }
  return budget;
}

// Budgets are about the same texts, which a table of them relies on.
void check_texts(const std::vector<MaskBudget>& budgets) {
  SMOE_CHECK(DataError, !budgets.empty(), "`budgets` is empty");
  for (const MaskBudget& budget : budgets) {
    SMOE_CHECK(DataError,
               std::ranges::equal(budget.texts, budgets.front().texts, {}, &MaskText::name, &MaskText::name),
               "budget `{}` has other texts with several topics than `{}`", budget.name,
               budgets.front().name);
  }
}

}  // namespace

MaskFigures read_mask_figures(const std::filesystem::path& path) {
  const std::filesystem::path file = std::filesystem::is_directory(path) ? path / "masks.json" : path;
  MaskFigures figures;
  figures.name = file.stem() == "masks" && file.has_parent_path() ? file.parent_path().filename().string()
                                                                  : file.stem().string();
  const std::string text = read_file(file);
  SMOE_CHECK(DataError, !is_too_deep_json(text), "{}: the JSON nests more than {} levels deep", file.string(),
             kMaxJsonDepth);
  try {
    const Json json = Json::parse(text);
    figures.segment_length = json.at("segment_length").get<int64_t>();
    figures.nesting = json.at("nesting").get<std::vector<double>>();
    for (const Json& budget : json.at("budgets")) figures.budgets.push_back(read_budget(budget));
    check_texts(figures.budgets);
  } catch (const Json::exception& error) {
    throw DataError(
        fmt::format("{}: not a masks.json of smoe-inspect masks: {}", file.string(), error.what()));
  } catch (const DataError& error) {
    throw DataError(
        fmt::format("{}: {}; write it again with smoe-inspect masks", file.string(), error.what()));
  }
  return figures;
}

}  // namespace smoe
