#include "smoe/report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "smoe/core/progress.h"

namespace smoe {
namespace {

constexpr int kRight = 12;
constexpr int kTop = 12;
constexpr int kBottom = 46;

struct Extent {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void add(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
  // A flat line stands in the middle, one of zeros at the bottom.
  void widen() {
    if (high > low) return;
    const double half = 0.05 * std::abs(high);
    low -= half;
    high += high == 0.0 ? 1.0 : half;
  }
};

// Ticks of large values as 1.5M, of others with the digits that their distance needs.
std::string tick_text(double value, double distance) {
  if (std::abs(value) >= 1e16) return fmt::format("{:.2g}", value);
  if (std::abs(value) >= 1e4) return format_count(value);
  const int digits = std::clamp(static_cast<int>(std::ceil(-std::log10(distance) - 1e-9)), 0, 6);
  return fmt::format("{:.{}f}", value, digits);
}

// Maps data to the drawing.
struct Frame {
  Extent x, y;
  int width, height;
  // Room for "-0.005" beside the name of the axis, in the larger letters of narrow screens too.
  int left() const { return width > kNarrowChart ? 96 : 80; }
  double to_x(double value) const {
    return left() + (value - x.low) / (x.high - x.low) * (width - left() - kRight);
  }
  double to_y(double value) const {
    return height - kBottom - (value - y.low) / (y.high - y.low) * (height - kTop - kBottom);
  }
};

std::string axes(const Frame& frame, const ChartOptions& options) {
  std::string svg;
  const int bottom = options.height - kBottom;
  const std::vector<double> y_ticks = round_ticks(frame.y.low, frame.y.high, 6);
  for (const double tick : y_ticks) {
    const double distance = y_ticks.size() > 1 ? y_ticks[1] - y_ticks[0] : std::abs(tick);
    svg += fmt::format("<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>", frame.left(),
                       options.width - kRight, frame.to_y(tick), frame.to_y(tick));
    svg += fmt::format("<text class=\"tick\" x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>",
                       frame.left() - 8, frame.to_y(tick) + 4, tick_text(tick, distance));
  }
  const std::vector<double> x_ticks = round_ticks(frame.x.low, frame.x.high, 7);
  for (const double tick : x_ticks) {
    const double distance = x_ticks.size() > 1 ? x_ticks[1] - x_ticks[0] : std::abs(tick);
    svg += fmt::format("<text class=\"tick\" x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                       frame.to_x(tick), bottom + 18, tick_text(tick, distance));
  }
  svg += fmt::format("<line class=\"axis\" x1=\"{0}\" x2=\"{1}\" y1=\"{2}\" y2=\"{2}\"/>", frame.left(),
                     options.width - kRight, bottom);
  svg += fmt::format("<text class=\"name\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                     (frame.left() + options.width - kRight) / 2, options.height - 6,
                     html_escaped(options.x_label));
  svg += fmt::format(
      "<text class=\"name\" transform=\"translate(14 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
      (kTop + bottom) / 2, html_escaped(options.y_label));
  return svg;
}

std::string drawn(const ChartSeries& series, const Frame& frame) {
  std::string svg;
  if (series.marks_only) {
    for (const auto& [x, y] : series.points) {
      if (!std::isfinite(y)) continue;
      svg += fmt::format(
          "<circle class=\"c{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\"><title>{}: {:.4f}</title></circle>",
          series.color % 8, frame.to_x(x), frame.to_y(y), html_escaped(series.label), y);
    }
    return svg;
  }
  std::string path;
  bool pen_is_down = false;
  for (const auto& [x, y] : series.points) {
    if (std::isfinite(y))
      path += fmt::format("{}{:.1f} {:.1f}", pen_is_down ? "L" : "M", frame.to_x(x), frame.to_y(y));
    pen_is_down = std::isfinite(y);
  }
  return fmt::format("<path class=\"c{} d{}\" d=\"{}\"><title>{}</title></path>", series.color % 8,
                     series.dash % 3, path, html_escaped(series.label));
}

std::string legend(const std::vector<ChartSeries>& series) {
  std::string html = "<figcaption>";
  for (const ChartSeries& one : series) {
    if (one.points.empty()) continue;
    const std::string sample =
        one.marks_only
            ? fmt::format("<circle class=\"c{}\" cx=\"12\" cy=\"6\" r=\"3.5\"/>", one.color % 8)
            : fmt::format("<path class=\"c{} d{}\" d=\"M0 6L24 6\"/>", one.color % 8, one.dash % 3);
    html += fmt::format("<span><svg width=\"24\" height=\"12\" aria-hidden=\"true\">{}</svg>{}</span> ",
                        sample, html_escaped(one.label));
  }
  return html + "</figcaption>";
}

}  // namespace

std::vector<double> round_ticks(double low, double high, int count) {
  const double rough = (high - low) / std::max(count, 1);
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double distance = 10.0 * power;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) {
      distance = factor * power;
      break;
    }
  }
  std::vector<double> ticks;
  // Whole multiples, not sums: no tick is called 0.30000000000000004.
  for (double multiple = std::ceil(low / distance - 1e-9); multiple * distance <= high + 1e-9 * distance;
       ++multiple) {
    ticks.push_back(multiple * distance + 0.0);  // no tick is called -0
  }
  return ticks;
}

std::string line_chart(const std::vector<ChartSeries>& series, const ChartOptions& options) {
  Frame frame{{}, {}, options.width, options.height};
  for (const ChartSeries& one : series) {
    for (const auto& [x, y] : one.points) {
      frame.x.add(x);
      frame.y.add(y);
    }
  }
  const std::string title = html_escaped(options.title);
  if (frame.x.empty() || frame.y.empty()) {
    return fmt::format("<figure class=\"chart\"><h3>{}</h3><p class=\"none\">nothing yet</p></figure>\n",
                       title);
  }
  if (options.starts_at_zero) frame.y.add(0.0);
  frame.x.widen();
  frame.y.widen();
  std::string svg = axes(frame, options);
  for (const ChartSeries& one : series) {
    if (!one.points.empty()) svg += drawn(one, frame);
  }
  return fmt::format(
      "<figure class=\"chart{}\"><h3>{}</h3><svg viewBox=\"0 0 {} {}\" role=\"img\" "
      "aria-label=\"{}\">{}</svg>{}"
      "</figure>\n",
      options.width > kNarrowChart ? " wide" : "", title, options.width, options.height, title, svg,
      legend(series));
}

std::string html_escaped(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

}  // namespace smoe
