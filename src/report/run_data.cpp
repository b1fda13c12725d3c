#include "smoe/report/run_data.h"

#include <algorithm>

#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/core/json.h"
#include "smoe/train/compute_account.h"
#include "smoe/train/metrics_file.h"

namespace smoe {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

Curve& curve_of(BudgetCurves& curves, const std::string& budget) {
  const auto found = std::ranges::find(curves, budget, [](const auto& pair) { return pair.first; });
  return found != curves.end() ? found->second : curves.emplace_back(budget, Curve{}).second;
}

void smooth(BudgetCurves& curves, double weight) {
  for (auto& [budget, curve] : curves) {
    for (size_t i = 1; i < curve.size(); ++i) {
      curve[i].value = weight * curve[i - 1].value + (1.0 - weight) * curve[i].value;
    }
  }
}

void add_training_line(RunData& run, const Json& line) {
  run.step = line.at("step").get<int64_t>();
  run.seconds = line.at("seconds").get<double>();
  const double tokens = line.at("tokens").get<double>();
  const auto point = [&](double value) { return CurvePoint{tokens, run.seconds, value}; };
  for (const auto& [budget, loss] : line.at("loss").items()) {
    curve_of(run.training_loss, budget).push_back(point(loss.get<double>()));
  }
  const auto add = [&](Curve& curve, const char* key) {
    // NaN is written as null: a line that breaks there.
    if (line.contains(key)) {
      curve.push_back(point(line.at(key).is_number() ? line.at(key).get<double>() : std::nan("")));
    }
  };
  add(run.learning_rate, "learning_rate");
  add(run.gradient_norm, "gradient_norm");
  add(run.tokens_per_s, "processed_tokens_per_s");
  add(run.peak_memory_bytes, "peak_memory_bytes");
}

void add_validation_line(RunData& run, const Json& line) {
  const CurvePoint at{line.at("tokens").get<double>(), run.seconds, 0.0};
  const auto point = [&at](double value) { return CurvePoint{at.tokens, at.seconds, value}; };
  for (const auto& [budget, mean] : mean_validation_losses(line)) {
    curve_of(run.validation_loss, budget).push_back(point(mean));
  }
  if (line.contains("router")) {
    for (const auto& [budget, panel] : line.at("router").items()) {
      for (const auto& [field, value] : panel.items()) {
        curve_of(run.router[field], budget).push_back(point(value.template get<double>()));
      }
    }
  }
  run.last_validation = line;
}

std::string newest_code_version(const fs::path& folder) {
  const fs::path latest = folder / "checkpoints" / "latest";
  if (!fs::exists(latest)) return "";
  std::string name = read_file(latest);
  while (!name.empty() && name.back() == '\n') name.pop_back();
  const fs::path state = folder / "checkpoints" / name / "train_state.json";
  if (!fs::exists(state)) return "";
  return read_json_file(state).value("code_version", "");
}

std::vector<RunResults> read_results(const fs::path& folder, const std::vector<fs::path>& more) {
  std::vector<fs::path> files = more;
  if (fs::is_directory(folder / "evaluations")) {
    for (const auto& entry : fs::directory_iterator(folder / "evaluations")) {
      if (entry.path().extension() == ".json") files.push_back(entry.path());
    }
  }
  std::ranges::sort(files);
  std::vector<RunResults> results;
  for (const fs::path& file : files) {
    RunResults one{file.stem().string(), Json::parse(read_file(file), nullptr, /*allow_exceptions=*/false)};
    SMOE_CHECK(DataError, one.json.is_object() && one.json.contains("tasks") && one.json.contains("budgets"),
               "{}: not a results file of smoe-eval (a JSON object with `tasks` and `budgets`)",
               file.string());
    results.push_back(std::move(one));
  }
  return results;
}

}  // namespace

RunData read_run(const fs::path& folder, const MoreFigures& more, double smoothing) {
  RunData run;
  run.folder = folder;
  run.name = (folder.has_filename() ? folder : folder.parent_path()).filename().string();
  const fs::path config_file = folder / "config.yaml";
  SMOE_CHECK(DataError, fs::is_regular_file(config_file),
             "{}: no such file; give the run folder of smoe-train, which holds config.yaml and metrics.jsonl",
             config_file.string());
  run.config = read_config<TrainConfig>({config_file, {}});
  run.config_yaml = read_file(config_file);
  run.code_version = newest_code_version(folder);
  const ComputeAccount account = account_compute(run.config);
  run.total_flops = account.flops_6nt();
  run.total_tokens = static_cast<double>(run.config.steps) * static_cast<double>(run.config.batch_size) *
                     static_cast<double>(run.config.data.sequence_length);
  for (const Json& line : read_metrics(folder / "metrics.jsonl")) {
    if (line["kind"] == "train") add_training_line(run, line);
    if (line["kind"] == "validation") add_validation_line(run, line);
  }
  smooth(run.training_loss, smoothing);
  run.results = read_results(folder, more.results);
  if (fs::exists(folder / "masks" / "masks.json")) run.masks.push_back(read_mask_figures(folder / "masks"));
  for (const fs::path& path : more.masks) run.masks.push_back(read_mask_figures(path));
  return run;
}

}  // namespace smoe
