#include "smoe/report/html_report.h"

#include <algorithm>
#include <functional>

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

std::string table(const std::vector<std::string>& header, const std::vector<std::vector<std::string>>& rows) {
  std::string html = "<div class=\"scroll\"><table><thead><tr>";
  for (const std::string& cell : header) html += "<th>" + cell + "</th>";
  html += "</tr></thead><tbody>";
  for (const std::vector<std::string>& row : rows) {
    html += "<tr>";
    for (const std::string& cell : row) html += "<td>" + cell + "</td>";
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

// The colour of a budget, the same in all charts; runs differ by dashes.
struct Palette {
  std::vector<std::string> budgets;
  size_t color(const std::string& budget) {
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
          {series_label(runs, runs[i], budget), points_of(runs[i], curve, x), palette.color(budget), i});
    }
    for (const auto& [budget, curve] : runs[i].validation_loss) {
      series.push_back({series_label(runs, runs[i], budget + " validation"), points_of(runs[i], curve, x),
                        palette.color(budget), i, /*marks_only=*/true});
    }
  }
  return line_chart(series, {fmt::format("Loss against {}", x_label), x_label, "nats a token"});
}

std::string loss_section(const std::vector<RunData>& runs, Palette& palette) {
  const auto tokens = [](const RunData&, const CurvePoint& point) { return point.tokens; };
  const auto flops = [](const RunData& run, const CurvePoint& point) {
    return run.total_flops * point.tokens / run.total_tokens;
  };
  const auto seconds = [](const RunData&, const CurvePoint& point) { return point.seconds; };
  std::string html = "<h2>Loss per budget</h2><div class=\"tabs\">";
  const std::vector<std::pair<std::string, XOf>> tabs = {
      {"tokens", tokens}, {"FLOPs (6NT)", flops}, {"seconds", seconds}};
  for (size_t i = 0; i < tabs.size(); ++i) {
    html += fmt::format("<input type=\"radio\" name=\"x\" id=\"x{0}\"{1}><label for=\"x{0}\">{2}</label>", i,
                        i == 0 ? " checked" : "", tabs[i].first);
  }
  for (const auto& [label, x] : tabs) {
    html += "<div class=\"tab\">" + loss_chart(runs, palette, x, label.c_str()) + "</div>";
  }
  return html +
         "</div><p class=\"soft\">Lines: training loss, smoothed. Points: mean over the validation sources. "
         "Tokens count "
         "each sequence once; FLOPs count every budget that it is trained at.</p>\n";
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
  return "<h2>Summary</h2>" + table({"run", "architecture", "step", "tokens", "FLOPs (6NT)", "trained for",
                                     "tokens/s", "validation loss", "smoe"},
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
    html += table({"differs", html_escaped(runs[0].name), html_escaped(runs[i].name)}, rows);
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
  return "<h2>Validation by source</h2>" + table(header, rows) +
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
                          palette.color(budget), i});
      }
    }
    if (!series.empty()) charts += line_chart(series, {title, "tokens", field, false, 460, 280});
  }
  if (charts.empty()) return "";
  return "<h2>Router health</h2><p class=\"soft\">Measured in validation, at every budget.</p><div "
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

std::string estimate_text(const Json& estimate, bool is_share) {
  const double scale = is_share ? 100.0 : 1.0;
  return fmt::format("{:.{}f} <small>±{:.{}f}</small>", scale * estimate.at("value").get<double>(),
                     is_share ? 2 : 4, scale * estimate.at("stderr").get<double>(), is_share ? 2 : 4);
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
              table(header, result_rows(results.json));
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
  Palette palette;
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>{0}</title>"
      "<style>{1}</style></head>\n<body><h1>{0}</h1><p class=\"soft\">Written by smoe-report {2}</p>\n",
      html_escaped(names), kPageStyle, html_escaped(version()));
  html += summary_section(runs) + loss_section(runs, palette) + validation_section(runs) +
          results_section(runs) + router_section(runs, palette) + speed_section(runs) + config_section(runs);
  return html + "</body></html>\n";
}

}  // namespace smoe
