#include "smoe/data/data_config.h"

#include <set>

namespace smoe {
namespace {

void check_names(const std::vector<SourceConfig>& sources, const char* list, ConfigProblems& problems) {
  std::set<std::string> seen;
  for (size_t i = 0; i < sources.size(); ++i) {
    const std::string& name = sources[i].name;
    const std::string key = fmt::format("{}.{}.name", list, i);
    if (name.empty()) {
      problems.add_rule(key, "is empty; give each source a name, which labels its metrics");
    } else if (!seen.insert(name).second) {
      problems.add_rule(key, fmt::format("\"{}\" is the name of an earlier source; names must differ", name));
    }
  }
}

}  // namespace

void validate(const DataConfig& config, ConfigProblems& problems) {
  check_names(config.train, "train", problems);
  check_names(config.validation, "validation", problems);
  for (size_t i = 0; i < config.validation.size(); ++i) {
    if (config.validation[i].name != "mean") continue;
    problems.add_rule(fmt::format("validation.{}.name", i),
                      "\"mean\" is the name of the mean over all sources in metrics; choose another one");
  }
}

}  // namespace smoe
