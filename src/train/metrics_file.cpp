#include "smoe/train/metrics_file.h"

#include <algorithm>
#include <sstream>

#include "smoe/core/error.h"
#include "smoe/core/files.h"

namespace smoe {

std::vector<nlohmann::ordered_json> read_metrics(const std::filesystem::path& path) {
  std::vector<nlohmann::ordered_json> lines;
  if (!std::filesystem::exists(path)) return lines;
  std::istringstream stream(read_file(path));
  std::string text;
  for (int64_t number = 1; std::getline(stream, text); ++number) {
    auto json = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (json.is_discarded() && stream.peek() == EOF) break;
    SMOE_CHECK(DataError, json.is_object() && json.contains("kind"),
               "{}:{}: not a metrics line (a JSON object with `kind`)", path.string(), number);
    lines.push_back(std::move(json));
  }
  return lines;
}

std::vector<std::pair<std::string, double>> mean_validation_losses(const nlohmann::ordered_json& line) {
  std::vector<std::pair<std::string, double>> means;
  const nlohmann::ordered_json& sources = line.at("sources");
  for (const auto& source : sources) {
    for (const auto& [budget, loss] : source.at("loss").items()) {
      const auto found = std::find_if(means.begin(), means.end(),
                                      [&budget = budget](const auto& mean) { return mean.first == budget; });
      const double share = loss.get<double>() / static_cast<double>(sources.size());
      if (found == means.end()) {
        means.emplace_back(budget, share);
      } else {
        found->second += share;
      }
    }
  }
  return means;
}

}  // namespace smoe
