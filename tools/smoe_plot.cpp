// smoe-plot: draws the loss per budget of training runs as an SVG or PNG.
#include <CLI/CLI.hpp>

#include "command_line.h"
#include "smoe/core/error.h"
#include "smoe/core/tool.h"
#include "smoe/train/loss_plot.h"

int main(int argc, char** argv) {
  CLI::App app("Draws training and validation loss per budget against tokens (needs gnuplot).");
  std::vector<std::filesystem::path> runs;
  smoe::LossPlotOptions options;
  app.add_option("run", runs, "run folders of smoe-train")->required();
  app.add_option("--out", options.out, "the .svg or .png to write")->required();
  app.add_option("--title", options.title, "heading of the plot")->capture_default_str();
  app.add_option("--smoothing", options.smoothing, "weight of the past in the average of the training loss")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 0.999));
  if (const auto status = smoe::parse_command_line(app, argc, argv)) return *status;

  return smoe::run_tool([&] {
    smoe::plot_losses(runs, options);
    fmt::print("wrote {}\n", options.out.string());
    return 0;
  });
}
