#include "smoe/train/loss_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "smoe/core/error.h"
#include "smoe/core/gnuplot.h"
#include "smoe/train/metrics_file.h"

namespace smoe {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Exponential moving average that starts at the first value.
std::vector<double> smoothed(const std::vector<double>& values, double weight) {
  std::vector<double> result;
  for (const double value : values) {
    result.push_back(result.empty() ? value : weight * result.back() + (1.0 - weight) * value);
  }
  return result;
}

std::string make_script(const std::vector<LossCurve>& curves, const LossPlotOptions& options) {
  std::string script = fmt::format(
      "set title {}\nset xlabel 'training tokens (each sequence once)'\n"
      "set ylabel 'loss, nats per token'\nset grid lc rgb '#dddddd'\nset key below Left reverse\n"
      "set format x '%.1s%c'\n",
      gnuplot_quoted(options.title));
  std::string plots;
  // A validation curve has the colour of its budget's training curve, and no entry of its own in the key,
  // which long names of runs fill soon: one entry says what points are.
  bool has_points = false;
  std::map<std::string, size_t> color_of;
  for (size_t i = 0; i < curves.size(); ++i) {
    const LossCurve& curve = curves[i];
    const size_t color = color_of.emplace(curve.label, color_of.size()).first->second;
    script += fmt::format("$curve{} << EOD\n", i);
    for (size_t j = 0; j < curve.tokens.size(); ++j) {
      script += fmt::format("{} {}\n", curve.tokens[j], curve.losses[j]);
    }
    script += "EOD\n";
    const std::string style = curve.is_validation ? "with points pt 7 ps 0.7" : "with lines lw 2";
    const std::string title = curve.is_validation ? "notitle" : "title " + gnuplot_quoted(curve.label);
    plots += fmt::format("{}$curve{} using 1:2 {} lc rgb {} {}", plots.empty() ? "plot " : ", \\\n     ", i,
                         style, gnuplot_color(color), title);
    has_points = has_points || curve.is_validation;
  }
  if (has_points) plots += ", \\\n     NaN with points pt 7 ps 0.7 lc rgb 'black' title 'points: validation'";
  return script + plots + "\n";
}

}  // namespace

std::vector<LossCurve> read_loss_curves(const fs::path& run, const std::string& label_prefix,
                                        double smoothing) {
  const fs::path path = run / "metrics.jsonl";
  SMOE_CHECK(DataError, fs::is_regular_file(path), "{}: no such file; give the run folder of smoe-train",
             path.string());
  std::vector<LossCurve> training, validation;
  const auto add = [&](std::vector<LossCurve>& curves, const std::string& budget, double tokens,
                       double loss) {
    const std::string label = label_prefix + budget;
    auto found =
        std::find_if(curves.begin(), curves.end(), [&](const LossCurve& c) { return c.label == label; });
    if (found == curves.end()) {
      curves.push_back({label, &curves == &validation, {}, {}});
      found = std::prev(curves.end());
    }
    found->tokens.push_back(tokens);
    found->losses.push_back(loss);
  };
  for (const Json& line : read_metrics(path)) {
    if (line["kind"] == "train") {
      for (const auto& [budget, loss] : line.at("loss").items()) {
        add(training, budget, line.at("tokens").get<double>(), loss.get<double>());
      }
    } else if (line["kind"] == "validation") {
      for (const auto& [budget, loss] : mean_validation_losses(line)) {
        add(validation, budget, line.at("tokens").get<double>(), loss);
      }
    }
  }
  for (LossCurve& curve : training) curve.losses = smoothed(curve.losses, smoothing);
  training.insert(training.end(), validation.begin(), validation.end());
  SMOE_CHECK(DataError, !training.empty(), "{}: no losses yet; the first come after log_every_steps steps",
             path.string());
  return training;
}

void plot_losses(const std::vector<fs::path>& runs, const LossPlotOptions& options) {
  std::vector<LossCurve> curves;
  for (const fs::path& run : runs) {
    const fs::path folder = run.has_filename() ? run : run.parent_path();
    const std::string prefix = runs.size() > 1 ? folder.filename().string() + " " : "";
    for (LossCurve& curve : read_loss_curves(run, prefix, options.smoothing))
      curves.push_back(std::move(curve));
  }
  write_gnuplot(options.out, make_script(curves, options));
}

}  // namespace smoe
