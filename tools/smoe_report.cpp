// smoe-report: one self-contained HTML page about one or several runs.
#include <CLI/CLI.hpp>

#include "command_line.h"
#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/core/log.h"
#include "smoe/core/tool.h"
#include "smoe/report/html_report.h"

int main(int argc, char** argv) {
  CLI::App app(
      "Writes one HTML page about one or several runs: config, loss, benchmarks, routing, masks, speed.");
  std::vector<std::string> folders;
  std::vector<std::string> results;
  std::vector<std::string> masks;
  std::string out = "report.html";
  double smoothing = 0.6;
  app.add_option("runs", folders, "run folders of smoe-train; further ones are compared with the first")
      ->required();
  app.add_option("--results", results,
                 "results files of smoe-eval for the first run, beside those in RUN/evaluations");
  app.add_option("--masks", masks,
                 "folders or files of smoe-inspect masks for the first run, beside RUN/masks");
  app.add_option("--out", out, "the page")->capture_default_str();
  app.add_option("--smoothing", smoothing, "weight of the past in the training loss")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 0.999));
  if (const auto status = smoe::parse_command_line(app, argc, argv)) return *status;
  return smoe::run_tool([&] {
    smoe::initialize_logging("auto");
    smoe::prepare_output_file(out);
    std::vector<smoe::RunData> runs;
    for (size_t i = 0; i < folders.size(); ++i) {
      smoe::MoreFigures more;
      if (i == 0) more = {{results.begin(), results.end()}, {masks.begin(), masks.end()}};
      runs.push_back(smoe::read_run(folders[i], more, smoothing));
    }
    smoe::write_file_atomically(out, smoe::html_report(runs));
    fmt::print("wrote {}\n", out);
    return 0;
  });
}
