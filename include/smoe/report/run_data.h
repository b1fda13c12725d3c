// What a report shows of one run: read from the folder that smoe-train writes.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "smoe/report/mask_figures.h"
#include "smoe/train/train_config.h"

namespace smoe {

// A value over the run: at which step, tokens and seconds, and what.
struct CurvePoint {
  double tokens = 0.0;
  double seconds = 0.0;
  double value = 0.0;
};
using Curve = std::vector<CurvePoint>;
// By budget, in the order of the run's budgets.
using BudgetCurves = std::vector<std::pair<std::string, Curve>>;

// One results file of smoe-eval.
struct RunResults {
  std::string name;  // of the file, without its ending
  nlohmann::ordered_json json;
};

struct RunData {
  std::string name;  // name of the folder
  std::filesystem::path folder;
  TrainConfig config;
  std::string config_yaml;
  std::string code_version;  // of the newest checkpoint; empty if there is none

  int64_t step = 0;  // of the last training line
  double seconds = 0.0;
  double total_tokens = 0.0;     // of the whole run, each sequence once
  double total_flops = 0.0;      // 6NT over all budgets, of the whole run
  BudgetCurves training_loss;    // smoothed
  BudgetCurves validation_loss;  // mean over sources
  Curve learning_rate, gradient_norm, tokens_per_s, peak_memory_bytes;
  std::map<std::string, BudgetCurves> router;             // by field, from validations
  std::optional<nlohmann::ordered_json> last_validation;  // the line as it is
  std::vector<RunResults> results;
  std::vector<MaskFigures> masks;
};

// What a report shows of a run beside the files in its folder.
struct MoreFigures {
  std::vector<std::filesystem::path> results;  // files of smoe-eval
  std::vector<std::filesystem::path> masks;    // masks.json of smoe-inspect masks, or their folders
};

// Reads config.yaml, metrics.jsonl, evaluations/*.json and masks/masks.json of the folder, and `more`. Throws
// DataError or ConfigError naming the file.
RunData read_run(const std::filesystem::path& folder, const MoreFigures& more, double smoothing);

}  // namespace smoe
