// Annotations in AlpacaEval's own file format.
#include <unordered_map>

#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/core/json.h"
#include "smoe/eval/alpaca_eval.h"
#include "smoe/eval/rows.h"

namespace smoe {
namespace {

std::optional<double> preference_of(const Row& row) {
  const auto found = row.value().find("preference");
  SMOE_CHECK(DataError, found != row.value().end(), "{}: no field `preference`", row.where());
  if (found->is_null()) return std::nullopt;
  const double value = found->is_number() ? found->get<double>() : -1.0;
  if (value == 0.0) return 0.5;  // older files write a draw as 0
  SMOE_CHECK(
      DataError, value >= 1.0 && value <= 2.0,
      "{}: `preference` is {}; expected 1 (the baseline is better) to 2 (the model is better), 0 for a "
      "draw, or null",
      row.where(), found->dump());
  return value - 1.0;
}

std::string raw_completion(const Row& row) {
  const auto found = row.value().find("raw_completion");
  if (found == row.value().end() || found->is_null()) return "";
  return found->is_string() ? found->get<std::string>() : found->dump();
}

}  // namespace

void write_alpaca_annotations(const std::filesystem::path& file, const std::string& annotator,
                              const std::vector<AlpacaItem>& items,
                              const std::vector<AlpacaVerdict>& verdicts) {
  SMOE_ASSERT(items.size() == verdicts.size());
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (size_t i = 0; i < items.size(); ++i) {
    const AlpacaItem& item = items[i];
    nlohmann::ordered_json entry = {{"instruction", item.instruction},
                                    {"dataset", item.dataset},
                                    {"output_1", item.baseline_output},
                                    {"generator_1", item.baseline_name},
                                    {"output_2", item.model_output},
                                    {"generator_2", item.model_name},
                                    {"annotator", annotator},
                                    {"is_switched_outputs", item.model_is_first},
                                    {"preference", nullptr},
                                    {"raw_completion", verdicts[i].raw}};
    if (verdicts[i].preference) entry["preference"] = 1.0 + *verdicts[i].preference;
    if (!verdicts[i].problem.empty()) entry["problem"] = verdicts[i].problem;
    list.push_back(std::move(entry));
  }
  write_file_atomically(file, list.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

std::vector<AlpacaVerdict> read_alpaca_annotations(const std::filesystem::path& file,
                                                   const std::vector<AlpacaItem>& items) {
  const nlohmann::json list = read_json_file(file);
  SMOE_CHECK(DataError, list.is_array(), "{}: found {}; expected a list of annotations", file.string(),
             list.type_name());
  std::unordered_map<std::string, Row> row_of;
  for (size_t i = 0; i < list.size(); ++i) {
    const Row row(file.string() + ", entry", static_cast<int64_t>(i) + 1, list[i]);
    SMOE_CHECK(DataError, row_of.emplace(row.text("instruction"), row).second,
               "{}: a second annotation of the instruction '{:.80}'", row.where(), row.text("instruction"));
  }
  std::vector<AlpacaVerdict> verdicts;
  for (const AlpacaItem& item : items) {
    const auto found = row_of.find(item.instruction);
    if (found == row_of.end()) {
      verdicts.push_back({std::nullopt, "", "not in the file of judgements"});
      continue;
    }
    const Row& row = found->second;
    SMOE_CHECK(DataError,
               row.text("output_1") == item.baseline_output && row.text("output_2") == item.model_output,
               "{}: the annotation compares other answers than those given (`output_1` must be {}'s, "
               "`output_2` {}'s)",
               row.where(), item.baseline_name, item.model_name);
    verdicts.push_back({preference_of(row), raw_completion(row), ""});
    if (!verdicts.back().preference) verdicts.back().problem = "no preference in the file of judgements";
  }
  return verdicts;
}

}  // namespace smoe
