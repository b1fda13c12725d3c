#include "smoe/report/html_report.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "html_parts.h"
#include "mask_section.h"
#include "page_style.h"
#include "smoe/core/error.h"
#include "smoe/core/progress.h"
#include "smoe/core/tool.h"
#include "smoe/report/chart.h"
#include "smoe/routing/budgets.h"
#include "smoe/train/compute_account.h"
#include "smoe/train/config_difference.h"

namespace smoe {
namespace {

using Json = nlohmann::ordered_json;

// The colour of a budget, the same in all charts; runs differ by dashes, and by colours where each has one
// budget.
struct Palette {
  bool colors_runs = false;
  std::vector<std::string> budgets;

  explicit Palette(const std::vector<RunData>& runs) {
    colors_runs = std::ranges::all_of(runs, [](const RunData& run) { return run.training_loss.size() <= 1; });
  }
  size_t color(size_t run, const std::string& budget) {
    if (colors_runs) return run;
    const auto found = std::ranges::find(budgets, budget);
    if (found != budgets.end()) return static_cast<size_t>(found - budgets.begin());
    budgets.push_back(budget);
    return budgets.size() - 1;
  }
};

std::string series_label(const std::vector<RunData>& runs, const RunData& run, const std::string& rest) {
  return runs.size() > 1 ? run.name + (rest.empty() ? "" : " " + rest) : rest;
}

using XOf = std::function<double(const RunData&, const CurvePoint&)>;

std::vector<std::pair<double, double>> points_of(const RunData& run, const Curve& curve, const XOf& x) {
  std::vector<std::pair<double, double>> points;
  for (const CurvePoint& point : curve) points.emplace_back(x(run, point), point.value);
  return points;
}

std::string loss_chart(const std::vector<RunData>& runs, Palette& palette, const XOf& x,
                       const char* x_label) {
  std::vector<ChartSeries> series;
  for (size_t i = 0; i < runs.size(); ++i) {
    for (const auto& [budget, curve] : runs[i].training_loss) {
      series.push_back(
          {series_label(runs, runs[i], budget), points_of(runs[i], curve, x), palette.color(i, budget), i});
    }
    for (const auto& [budget, curve] : runs[i].validation_loss) {
      series.push_back({series_label(runs, runs[i], budget + " validation"), points_of(runs[i], curve, x),
                        palette.color(i, budget), i, /*marks_only=*/true});
    }
  }
  return line_chart(series, {fmt::format("Loss against {}", x_label), x_label, "nats a token"});
}

// Where both have a point: without replication a budget need not be in every line, and runs may log at other
// steps.
std::vector<std::pair<double, double>> difference_of(const Curve& curve, const Curve& reference) {
  std::vector<std::pair<double, double>> points;
  for (const CurvePoint& point : curve) {
    const auto same = std::ranges::lower_bound(reference, point.tokens, {}, &CurvePoint::tokens);
    if (same != reference.end() && same->tokens == point.tokens)
      points.emplace_back(point.tokens, point.value - same->value);
  }
  return points;
}

std::string difference_figure(const std::vector<ChartSeries>& series, const std::string& title) {
  if (std::ranges::all_of(series, [](const ChartSeries& one) { return one.points.empty(); })) return "";
  return line_chart(series, {title, "tokens", "nats a token", true});
}

// Runs with the same data in the same order can be compared far below the noise of their losses.
std::string run_difference_chart(const std::vector<RunData>& runs, Palette& palette) {
  std::vector<ChartSeries> series;
  for (size_t i = 1; i < runs.size(); ++i) {
    for (const auto& [budget, curve] : runs[i].training_loss) {
      const BudgetCurves& all = runs[0].training_loss;
      // Those with one budget are compared whatever it is called: the only one of a dense model is `dense`.
      const auto first = palette.colors_runs
                             ? all.begin()
                             : std::ranges::find(all, budget, [](const auto& pair) { return pair.first; });
      if (first == all.end()) continue;
      series.push_back({series_label(runs, runs[i], budget), difference_of(curve, first->second),
                        palette.color(i, budget), i});
    }
  }
  return difference_figure(series, fmt::format("Training loss less that of {}", runs[0].name));
}

// Budgets see the same batches, so their differences are far less noisy than their losses.
std::string difference_chart(const std::vector<RunData>& runs, Palette& palette) {
  std::vector<ChartSeries> series;
  for (size_t i = 0; i < runs.size(); ++i) {
    const BudgetCurves& curves = runs[i].training_loss;
    for (size_t j = 0; j + 1 < curves.size(); ++j) {
      series.push_back({series_label(runs, runs[i], curves[j].first + " less " + curves.back().first),
                        difference_of(curves[j].second, curves.back().second),
                        palette.color(i, curves[j].first), i});
    }
  }
  return difference_figure(series, "Training loss less that of the largest budget");
}

std::string loss_section(const std::vector<RunData>& runs, Palette& palette) {
  const auto tokens = [](const RunData&, const CurvePoint& point) { return point.tokens; };
  const auto flops = [](const RunData& run, const CurvePoint& point) {
    return run.total_flops * point.tokens / run.total_tokens;
  };
  const auto seconds = [](const RunData&, const CurvePoint& point) { return point.seconds; };
  const std::vector<std::pair<std::string, XOf>> axes = {
      {"tokens", tokens}, {"FLOPs (6NT)", flops}, {"seconds", seconds}};
  std::vector<std::pair<std::string, std::string>> tabs;
  for (const auto& [label, x] : axes) tabs.emplace_back(label, loss_chart(runs, palette, x, label.c_str()));
  return "<h2>Loss per budget</h2>" + html_tabs("x", tabs) +
         "<p class=\"soft\">Lines: training loss, smoothed. Points: mean over the validation sources. Tokens "
         "count each sequence once; FLOPs count every budget that it is trained at.</p>\n" +
         difference_chart(runs, palette) + run_difference_chart(runs, palette);
}

std::string summary_section(const std::vector<RunData>& runs) {
  std::vector<std::vector<std::string>> rows;
  for (const RunData& run : runs) {
    std::string losses;
    for (const auto& [budget, curve] : run.validation_loss) {
      losses +=
          fmt::format("{}{} {:.4f}", losses.empty() ? "" : "<br>", html_escaped(budget), curve.back().value);
    }
    const double share =
        run.total_tokens == 0.0 || run.training_loss.empty() || run.training_loss[0].second.empty()
            ? 0.0
            : run.training_loss[0].second.back().tokens / run.total_tokens;
    const double speed = run.tokens_per_s.empty() ? 0.0 : run.tokens_per_s.back().value;
    rows.push_back({html_escaped(run.name), std::string(enum_to_name(run.config.model.architecture)),
                    fmt::format("{}/{}", run.step, run.config.steps), format_count(share * run.total_tokens),
                    fmt::format("{:.2e}", share * run.total_flops), format_duration(run.seconds),
                    format_count(speed), losses.empty() ? "-" : losses, html_escaped(run.code_version)});
  }
  return "<h2>Summary</h2>" + html_table({"run", "architecture", "step", "tokens", "FLOPs (6NT)",
                                          "trained for", "tokens/s", "validation loss", "smoe"},
                                         rows);
}

std::string config_section(const std::vector<RunData>& runs) {
  std::string html = "<h2>Config</h2>";
  for (size_t i = 1; i < runs.size(); ++i) {
    std::vector<std::vector<std::string>> rows;
    for (const ConfigDifference& difference : config_differences(runs[0].config_yaml, runs[i].config_yaml)) {
      rows.push_back(
          {html_escaped(difference.key), html_escaped(difference.before), html_escaped(difference.after)});
    }
    html += html_table({"differs", html_escaped(runs[0].name), html_escaped(runs[i].name)}, rows);
  }
  for (const RunData& run : runs) {
    html += fmt::format("<details><summary>{}: whole config</summary><pre>{}</pre></details>\n",
                        html_escaped(run.name), html_escaped(run.config_yaml));
  }
  return html;
}

std::string validation_section(const std::vector<RunData>& runs) {
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> header = {"source"};
  std::vector<std::string> sources;
  for (const RunData& run : runs) {
    if (!run.last_validation) continue;
    for (const auto& [source, figures] : run.last_validation->at("sources").items()) {
      if (std::ranges::find(sources, source) == sources.end()) sources.push_back(source);
    }
    for (const auto& [budget, curve] : run.validation_loss)
      header.push_back(html_escaped(series_label(runs, run, budget)));
  }
  for (const std::string& source : sources) {
    std::vector<std::string> row = {html_escaped(source)};
    for (const RunData& run : runs) {
      if (!run.last_validation) continue;
      const Json& all = run.last_validation->at("sources");
      for (const auto& [budget, curve] : run.validation_loss) {
        row.push_back(all.contains(source) ? fmt::format("{:.4f}<br><small>{:.4f}</small>",
                                                         all[source]["loss"].value(budget, 0.0),
                                                         all[source]["bits_per_byte"].value(budget, 0.0))
                                           : "-");
      }
    }
    rows.push_back(std::move(row));
  }
  if (rows.empty()) return "";
  return "<h2>Validation by source</h2>" + html_table(header, rows) +
         "<p class=\"soft\">Nats a token, and below them bits per byte, of the last validation.</p>\n";
}

std::string router_section(const std::vector<RunData>& runs, Palette& palette) {
  const XOf tokens = [](const RunData&, const CurvePoint& point) { return point.tokens; };
  const std::vector<std::pair<std::string, std::string>> fields = {
      {"load_entropy", "Load entropy (1: even)"},
      {"dead_expert_share", "Share of experts never chosen"},
      {"max_violation", "Largest load over the mean, less 1"},
      {"random_pair_cosine", "Cosine between masks of segments"},
      {"neighbor_overlap", "Experts kept from segment to segment"},
      {"saturated_share", "Chosen experts without a gradient"},
      {"logit_std", "Spread of the logits over segments"}};
  std::string charts;
  for (const auto& [field, title] : fields) {
    std::vector<ChartSeries> series;
    for (size_t i = 0; i < runs.size(); ++i) {
      const auto found = runs[i].router.find(field);
      if (found == runs[i].router.end()) continue;
      for (const auto& [budget, curve] : found->second) {
        series.push_back({series_label(runs, runs[i], budget), points_of(runs[i], curve, tokens),
                          palette.color(i, budget), i});
      }
    }
    if (!series.empty()) charts += line_chart(series, {title, "tokens", field, false, 460, 280});
  }
  if (charts.empty()) return "";
  return "<h2>Router health</h2><p class=\"soft\">Measured in validation, at every "
         "budget.</p><div "
         "class=\"charts\">" +
         charts + "</div>\n";
}

std::string speed_section(const std::vector<RunData>& runs) {
  const XOf tokens = [](const RunData&, const CurvePoint& point) { return point.tokens; };
  const auto chart = [&](const char* title, const char* unit, Curve RunData::*curve, double scale,
                         bool from_zero) {
    std::vector<ChartSeries> series;
    for (size_t i = 0; i < runs.size(); ++i) {
      auto points = points_of(runs[i], runs[i].*curve, tokens);
      for (auto& [x, y] : points) y *= scale;
      series.push_back({runs[i].name, std::move(points), i, 0});
    }
    return line_chart(series, {title, "tokens", unit, from_zero, 460, 280});
  };
  return "<h2>Speed, memory and step</h2><div class=\"charts\">" +
         chart("Tokens a second, all budgets counted", "tokens/s", &RunData::tokens_per_s, 1.0, true) +
         chart("Peak memory", "GiB", &RunData::peak_memory_bytes, 1.0 / (1 << 30), true) +
         chart("Gradient norm before clipping", "norm", &RunData::gradient_norm, 1.0, true) +
         chart("Learning rate", "peak x schedule", &RunData::learning_rate, 1.0, true) + "</div>\n";
}

// With the digits that a reader can use: perplexities of weak models run into millions.
std::string plain_number(double value) {
  if (std::abs(value) < 100.0) return fmt::format("{:.4f}", value);
  return std::abs(value) < 1e5 ? fmt::format("{:.1f}", value) : fmt::format("{:.3g}", value);
}

std::string estimate_text(const Json& estimate, bool is_share) {
  const double value = estimate.at("value").get<double>();
  const double error = estimate.at("stderr").get<double>();
  if (is_share) return fmt::format("{:.2f} <small>±{:.2f}</small>", 100.0 * value, 100.0 * error);
  return fmt::format("{} <small>±{}</small>", plain_number(value), plain_number(error));
}

std::vector<std::vector<std::string>> result_rows(const Json& results) {
  std::vector<std::vector<std::string>> rows;
  const auto add = [&](const std::string& task, const std::string& metric, const Json& json) {
    std::vector<std::string> row = {html_escaped(task), html_escaped(metric)};
    const bool is_share = json.at("is_share").get<bool>();
    for (const auto& budget : results.at("budgets")) {
      row.push_back(estimate_text(json.at("budgets").at(budget.at("name").get<std::string>()), is_share));
    }
    rows.push_back(std::move(row));
  };
  for (const auto& [name, task] : results.at("tasks").items()) {
    if (!task.contains("metrics")) continue;
    for (const auto& [metric, json] : task.at("metrics").items()) {
      add(task.value("title", name), metric + (metric == task.value("primary", "") ? " *" : ""), json);
    }
  }
  if (results.contains("groups")) {
    for (const auto& [name, group] : results.at("groups").items())
      add(group.value("title", name), "mean *", group);
  }
  return rows;
}

std::string results_section(const std::vector<RunData>& runs) {
  std::string html;
  for (const RunData& run : runs) {
    for (const RunResults& results : run.results) {
      std::vector<std::string> header = {"task", "metric"};
      for (const auto& budget : results.json.at("budgets")) {
        header.push_back(html_escaped(budget.at("name").get<std::string>()));
      }
      html += fmt::format("<h3>{}</h3>", html_escaped(series_label(runs, run, results.name))) +
              html_table(header, result_rows(results.json));
    }
  }
  if (html.empty()) return "";
  return "<h2>Benchmarks</h2>" + html +
         "<p class=\"soft\">Accuracies and other shares in percent; ± is one standard error; * marks a "
         "task's primary "
         "metric.</p>\n";
}

}  // namespace

std::string html_report(const std::vector<RunData>& runs) {
  SMOE_ASSERT(!runs.empty());
  std::string names;
  for (const RunData& run : runs) names += (names.empty() ? "" : ", ") + run.name;
  Palette palette(runs);
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>{0}</title>"
      "<style>{1}</style></head>\n<body><h1>{0}</h1><p class=\"soft\">Written by smoe-report {2}</p>\n",
      html_escaped(names), kPageStyle, html_escaped(version()));
  const std::vector<std::pair<const char*, std::string>> sections = {
      {"summary", summary_section(runs)},
      {"loss", loss_section(runs, palette)},
      {"validation", validation_section(runs)},
      {"benchmarks", results_section(runs)},
      {"router", router_section(runs, palette)},
      {"masks", mask_section(runs)},
      {"speed", speed_section(runs)},
      {"config", config_section(runs)}};
  for (const auto& [id, content] : sections) {
    if (!content.empty()) html += fmt::format("<section id=\"{}\">{}</section>\n", id, content);
  }
  return html + "</body></html>\n";
}

}  // namespace smoe
