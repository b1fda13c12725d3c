#include "smoe/train/metrics_file.h"

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

}  // namespace smoe
