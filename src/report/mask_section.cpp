#include "mask_section.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "html_parts.h"
#include "smoe/report/chart.h"
#include "smoe/report/heatmap.h"

namespace smoe {
namespace {

constexpr size_t kPreferredExperts = 3;  // named for each topic

std::string cosine_text(double value, int64_t pairs) {
  return pairs > 0 ? fmt::format("{:.3f}", value) : "-";
}

std::string similarity_cell(const PairSimilarity& pairs) {
  return cosine_text(pairs.within, pairs.within_pairs) + " / " +
         cosine_text(pairs.across, pairs.across_pairs);
}

// A row a thing compared, a column a budget.
std::string similarity_table(const MaskFigures& figures) {
  std::vector<std::string> header = {"cosine within / across topics"};
  std::vector<std::string> documents = {"documents"};
  for (const MaskBudget& budget : figures.budgets) {
    header.push_back(html_escaped(budget.name));
    documents.push_back(similarity_cell(budget.between_texts));
    if (budget.p_value) documents.back() += fmt::format("<br><small>p = {:.4f}</small>", *budget.p_value);
  }
  std::vector<std::vector<std::string>> rows = {documents};
  // Which texts have several topics does not depend on the budget.
  for (size_t i = 0; i < figures.budgets.front().texts.size(); ++i) {
    std::vector<std::string>& row = rows.emplace_back(1, html_escaped(figures.budgets.front().texts[i].name));
    for (const MaskBudget& budget : figures.budgets) row.push_back(similarity_cell(budget.texts[i].segments));
  }
  return html_table(header, rows) +
         "<p class=\"soft\">Documents: mean masks of whole documents about one topic each; p by random "
         "exchange "
         "of the topics. Others: segments of one text, which are not independent of each other.</p>\n";
}

// Where the bulk of the cosines of two different segments lies, over all texts: one scale for all, which a
// few pairs that are nearly equal don't stretch.
std::pair<double, double> cosine_range(const std::vector<MaskText>& texts) {
  std::vector<double> all;
  for (const MaskText& text : texts) {
    for (size_t i = 0; i < text.cosine.size(); ++i) {
      all.insert(all.end(), text.cosine[i].begin(), text.cosine[i].begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  std::ranges::sort(all);
  const auto at_share = [&all](double share) {
    return all[static_cast<size_t>(share * static_cast<double>(all.size() - 1))];
  };
  return {at_share(0.02), at_share(0.98)};
}

std::string text_heatmap(const MaskText& text, std::pair<double, double> range) {
  HeatmapOptions options;
  options.title = text.name;
  options.x_label = "segment";
  options.y_label = "segment";
  std::tie(options.low, options.high) = range;
  options.square = true;
  options.width = 380;
  options.value_name = "cosine";
  for (const std::string& topic : text.topics) {
    const auto found = std::ranges::find(options.group_names, topic);
    options.groups.push_back(static_cast<size_t>(found - options.group_names.begin()));
    if (found == options.group_names.end()) options.group_names.push_back(topic);
  }
  return heatmap(text.cosine, options);
}

std::pair<double, double> extremes(const Matrix& matrix) {
  std::pair<double, double> result{matrix[0][0], matrix[0][0]};
  for (const std::vector<double>& row : matrix) {
    const auto [low, high] = std::ranges::minmax(row);
    result = {std::min(result.first, low), std::max(result.second, high)};
  }
  return result;
}

std::string load_heatmap(const MaskBudget& budget) {
  HeatmapOptions options;
  options.title = "Share of segments that choose an expert";
  options.x_label = "expert";
  options.y_label = "MoE layer";
  std::tie(options.low, options.high) = extremes(budget.load);
  options.value_name = "share";
  options.width = 720;
  return heatmap(budget.load, options);
}

// Load among the segments of a topic less the load among all.
Matrix preference(const Matrix& topic_load, const Matrix& load) {
  Matrix result = topic_load;
  for (size_t layer = 0; layer < load.size(); ++layer) {
    for (size_t expert = 0; expert < load[layer].size(); ++expert)
      result[layer][expert] -= load[layer][expert];
  }
  return result;
}

// "2.17 (61% of the topic's segments, 24% of all)"
std::string preferred_experts(const Matrix& difference, const Matrix& load) {
  struct Preferred {
    double difference;
    size_t layer, expert;
  };
  std::vector<Preferred> all;
  for (size_t layer = 0; layer < load.size(); ++layer) {
    for (size_t expert = 0; expert < load[layer].size(); ++expert) {
      all.push_back({difference[layer][expert], layer, expert});
    }
  }
  const size_t count = std::min(kPreferredExperts, all.size());
  std::ranges::partial_sort(all, all.begin() + static_cast<std::ptrdiff_t>(count), std::greater{},
                            &Preferred::difference);
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    const Preferred& one = all[i];
    const double of_all = load[one.layer][one.expert];
    text += fmt::format("{}{}.{} <small>{:.0f}% against {:.0f}%</small>", i == 0 ? "" : " &nbsp; ", one.layer,
                        one.expert, 100.0 * (of_all + one.difference), 100.0 * of_all);
  }
  return text;
}

std::string preference_figures(const MaskBudget& budget) {
  if (budget.topic_loads.size() < 2) return "";
  std::vector<Matrix> differences;
  double high = 0.0;
  for (const auto& [topic, load] : budget.topic_loads) {
    differences.push_back(preference(load, budget.load));
    const auto [low, top] = extremes(differences.back());
    high = std::max({high, -low, top});
  }
  std::string figures;
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < differences.size(); ++i) {
    HeatmapOptions options;
    options.title = budget.topic_loads[i].first;
    options.x_label = "expert";
    options.y_label = "MoE layer";
    options.high = high;
    options.diverging = true;
    options.value_name = "share less the mean";
    figures += heatmap(differences[i], options);
    rows.push_back(
        {html_escaped(budget.topic_loads[i].first), preferred_experts(differences[i], budget.load)});
  }
  return "<h3>Experts that topics prefer</h3><div class=\"charts\">" + figures + "</div>" +
         html_table({"topic", "experts (layer.expert) with the largest gain over all topics"}, rows);
}

std::string budget_figures(const MaskBudget& budget) {
  std::string html;
  if (!budget.texts.empty()) {
    const auto range = cosine_range(budget.texts);
    html += "<h3>Cosine between the masks of segments</h3><div class=\"charts small\">";
    for (const MaskText& text : budget.texts) html += text_heatmap(text, range);
    html += "</div>";
  }
  return html + "<h3>Load</h3>" + load_heatmap(budget) + preference_figures(budget);
}

std::string hit_rate_chart(const MaskFigures& figures) {
  std::vector<ChartSeries> series;
  for (const MaskBudget& budget : figures.budgets) {
    if (!budget.hit_rates.empty()) series.push_back({budget.name, budget.hit_rates, series.size()});
  }
  if (series.empty()) return "";
  return line_chart(
      series, {"Experts kept from one segment to the next", "tokens a segment", "hit rate", true, 460, 280});
}

std::string nesting_text(const MaskFigures& figures) {
  std::string text;
  for (size_t i = 0; i < figures.nesting.size() && i + 1 < figures.budgets.size(); ++i) {
    text += fmt::format("{:.1f}% of the experts of {} are among those of {}. ", 100.0 * figures.nesting[i],
                        html_escaped(figures.budgets[i].name), html_escaped(figures.budgets[i + 1].name));
  }
  return text.empty() ? "" : "<p>" + text + "</p>\n";
}

std::string figures_of(const MaskFigures& figures, const std::string& tab_name) {
  std::vector<std::pair<std::string, std::string>> tabs;
  for (const MaskBudget& budget : figures.budgets) {
    tabs.emplace_back(fmt::format("{} (k={})", budget.name, budget.experts_per_layer),
                      budget_figures(budget));
  }
  const std::string rates = hit_rate_chart(figures);
  return fmt::format("<p class=\"soft\">Segments of {} tokens.</p>", figures.segment_length) +
         similarity_table(figures) + html_tabs(tab_name, tabs) +
         (rates.empty() ? "" : "<div class=\"charts\">" + rates + "</div>") + nesting_text(figures);
}

}  // namespace

std::string mask_section(const std::vector<RunData>& runs) {
  std::string html;
  size_t number = 0;
  size_t count = 0;
  for (const RunData& run : runs) count += run.masks.size();
  for (const RunData& run : runs) {
    for (const MaskFigures& figures : run.masks) {
      const std::string title = runs.size() > 1 ? run.name + " " + figures.name : figures.name;
      if (count > 1) html += "<h3>" + html_escaped(title) + "</h3>";
      html += figures_of(figures, fmt::format("masks{}-", number++));
    }
  }
  return html.empty() ? "" : "<h2>Routing masks</h2>" + html;
}

}  // namespace smoe
