#include "smoe/train/loss_plot.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

#include "smoe/core/error.h"
#include "smoe/core/files.h"

namespace smoe {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Okabe and Ito's colours, which people with colour-blindness can tell apart.
constexpr const char* kColors[] = {"#0072b2", "#e69f00", "#009e73", "#d55e00",
                                   "#cc79a7", "#56b4e9", "#f0e442", "#000000"};
constexpr size_t kNumColors = std::size(kColors);

// Exponential moving average that starts at the first value.
std::vector<double> smoothed(const std::vector<double>& values, double weight) {
  std::vector<double> result;
  for (const double value : values) {
    result.push_back(result.empty() ? value : weight * result.back() + (1.0 - weight) * value);
  }
  return result;
}

std::vector<Json> read_lines(const fs::path& path) {
  std::istringstream stream(read_file(path));
  std::vector<Json> lines;
  std::string text;
  for (int64_t number = 1; std::getline(stream, text); ++number) {
    Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    // The last line may be half-written: the run may be going on.
    if (json.is_discarded() && stream.peek() == EOF) break;
    SMOE_CHECK(DataError, json.is_object() && json.contains("kind"),
               "{}:{}: not a metrics line (a JSON object with `kind`)", path.string(), number);
    lines.push_back(std::move(json));
  }
  return lines;
}

// Mean over the sources of a validation line, a budget.
std::vector<std::pair<std::string, double>> mean_validation_losses(const Json& line) {
  std::vector<std::pair<std::string, double>> means;
  const Json& sources = line.at("sources");
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

void check_gnuplot() {
  std::istringstream folders(std::getenv("PATH") == nullptr ? "" : std::getenv("PATH"));
  std::string folder;
  while (std::getline(folders, folder, ':')) {
    if (::access((fs::path(folder) / "gnuplot").c_str(), X_OK) == 0) return;
  }
  throw ConfigError("gnuplot was not found on the PATH; install it with `apt-get install gnuplot-nox`");
}

// Text inside double quotes of a gnuplot script.
std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + "\"";
}

std::string make_script(const std::vector<LossCurve>& curves, const LossPlotOptions& options,
                        const fs::path& temporary) {
  std::string script = fmt::format(
      "set terminal svg size 900,560 dynamic font 'sans,14' background '#ffffff' noenhanced\n"
      "set output {}\nset title {}\nset xlabel 'training tokens (each sequence once)'\n"
      "set ylabel 'loss, nats per token'\nset grid lc rgb '#dddddd'\nset key outside right top\nset format x "
      "'%.1s%c'\n",
      quoted(temporary.string()), quoted(options.title));
  std::string plots;
  // A validation curve has the colour of its budget's training curve.
  std::map<std::string, size_t> color_of;
  for (size_t i = 0; i < curves.size(); ++i) {
    const LossCurve& curve = curves[i];
    const size_t color = color_of.emplace(curve.label, color_of.size()).first->second % kNumColors;
    script += fmt::format("$curve{} << EOD\n", i);
    for (size_t j = 0; j < curve.tokens.size(); ++j) {
      script += fmt::format("{} {}\n", curve.tokens[j], curve.losses[j]);
    }
    script += "EOD\n";
    const std::string style = curve.is_validation ? "with points pt 7 ps 0.7" : "with lines lw 2";
    plots += fmt::format("{}$curve{} using 1:2 {} lc rgb '{}' title {}",
                         plots.empty() ? "plot " : ", \\\n     ", i, style, kColors[color],
                         quoted(curve.label + (curve.is_validation ? " validation" : "")));
  }
  return script + plots + "\n";
}

void run_gnuplot(const std::string& script) {
  std::FILE* pipe = ::popen("gnuplot", "w");
  SMOE_CHECK(Error, pipe != nullptr, "gnuplot could not be started");
  const size_t written = std::fwrite(script.data(), 1, script.size(), pipe);
  const int status = ::pclose(pipe);
  SMOE_CHECK(Error, written == script.size() && status == 0,
             "gnuplot failed with status {}; its message is above", status);
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
  for (const Json& line : read_lines(path)) {
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
  SMOE_CHECK(ConfigError, options.out.extension() == ".svg", "--out {}: only .svg files can be written",
             options.out.string());
  check_gnuplot();
  std::vector<LossCurve> curves;
  for (const fs::path& run : runs) {
    const fs::path folder = run.has_filename() ? run : run.parent_path();
    const std::string prefix = runs.size() > 1 ? folder.filename().string() + " " : "";
    for (LossCurve& curve : read_loss_curves(run, prefix, options.smoothing))
      curves.push_back(std::move(curve));
  }
  // gnuplot leaves half a file behind when it fails.
  fs::path temporary = options.out;
  temporary += fmt::format(".tmp-{}", ::getpid());
  try {
    run_gnuplot(make_script(curves, options, temporary));
    fs::rename(temporary, options.out);
  } catch (...) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    throw;
  }
}

}  // namespace smoe
