// Draws the loss per budget of one or several runs against the tokens seen.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace smoe {

struct LossPlotOptions {
  std::filesystem::path out;  // an .svg or .png file
  std::string title = "Loss per budget";
  double smoothing = 0.6;  // weight of the past in the moving average of the training loss, in [0, 1)
};

// One curve of a plot.
struct LossCurve {
  std::string label;  // "run budget", or the budget alone for a single run
  bool is_validation = false;
  std::vector<double> tokens;
  std::vector<double> losses;  // nats a token
};

// The curves in RUN/metrics.jsonl: training losses smoothed, validation losses averaged over the sources.
// Throws DataError if the file is missing, is no metrics file or has no losses.
std::vector<LossCurve> read_loss_curves(const std::filesystem::path& run, const std::string& label_prefix,
                                        double smoothing);

// Reads the runs and has gnuplot write the file. Throws ConfigError if gnuplot is not installed or `out` is
// not an SVG, Error if gnuplot fails.
void plot_losses(const std::vector<std::filesystem::path>& runs, const LossPlotOptions& options);

}  // namespace smoe
