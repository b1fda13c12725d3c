#include <algorithm>

#include "smoe/analysis/mask_study.h"
#include "smoe/core/file_name.h"
#include "smoe/core/gnuplot.h"

namespace smoe {
namespace {

// Rows of numbers for `plot ... matrix with image`.
std::string matrix_block(const at::Tensor& matrix) {
  const at::Tensor values = matrix.to(at::kDouble).contiguous();
  const double* next = values.const_data_ptr<double>();
  std::string text = "$values << EOD\n";
  for (int64_t i = 0; i < values.size(0); ++i) {
    for (int64_t j = 0; j < values.size(1); ++j) text += fmt::format("{:.4f} ", *next++);
    text += "\n";
  }
  return text + "EOD\n";
}

bool has_value(const std::optional<double>& rate) { return rate.has_value(); }

// From white over blue to near black, which reads the same in grey and for people with colour-blindness.
constexpr const char* kShades = "set palette defined (0 '#ffffff', 0.5 '#56a0d3', 1 '#08244a')\n";

std::string heatmap(const at::Tensor& matrix, const std::string& title, const std::string& x,
                    const std::string& y, const std::string& extra) {
  return matrix_block(matrix) +
         fmt::format(
             "set title {}\nset xlabel {}\nset ylabel {}\n{}{}unset key\nset tics out nomirror\n"
             "set autoscale fix\nplot $values matrix with image\n",
             gnuplot_quoted(title), gnuplot_quoted(x), gnuplot_quoted(y), kShades, extra);
}

// Lines where the topic changes, and the names of the topics beside them.
std::string topic_borders(const std::vector<std::string>& topics) {
  std::string script;
  const size_t count = topics.size();
  size_t begin = 0;
  for (size_t i = 1; i <= count; ++i) {
    if (i < count && topics[i] == topics[begin]) continue;
    const double border = static_cast<double>(i) - 0.5;
    if (i < count) {
      script += fmt::format(
          "set arrow from {0},-0.5 to {0},{1} nohead front lc rgb '#d55e00' lw 1.5\n"
          "set arrow from -0.5,{0} to {1},{0} nohead front lc rgb '#d55e00' lw 1.5\n",
          border, static_cast<double>(count) - 0.5);
    }
    // Names of short runs, as in a topic that fades into another, would lie on top of each other.
    if (10 * (i - begin) >= count) {
      script += fmt::format("set label {} at {},{} center front\n", gnuplot_quoted(topics[begin]),
                            0.5 * static_cast<double>(begin + i - 1),
                            static_cast<double>(count) + 0.02 * static_cast<double>(count));
    }
    begin = i;
  }
  return script + "set title offset 0,1\n";
}

void plot_topics(const BudgetMasks& budget, const std::filesystem::path& folder, const std::string& ending) {
  // How much more often than on average a topic chooses an expert, experts of all layers in a row.
  const at::Tensor difference_GF = (budget.topic_load_GLE - budget.load_LE.unsqueeze(0)).flatten(1);
  std::string ticks = "set ytics (";
  for (size_t i = 0; i < budget.topics.size(); ++i) {
    ticks += fmt::format("{}{} {}", i == 0 ? "" : ", ", gnuplot_quoted(budget.topics[i]), i);
  }
  ticks += ")\nset palette defined (-1 '#d55e00', 0 '#ffffff', 1 '#0072b2')\n";
  const double largest = std::max(difference_GF.abs().max().item<double>(), 1e-6);
  ticks += fmt::format("set cbrange [{}:{}]\n", -largest, largest);
  write_gnuplot(folder / fmt::format("topics-{}.{}", file_name_of(budget.budget), ending),
                heatmap(difference_GF, fmt::format("Experts that topics prefer, budget {}", budget.budget),
                        "expert, layer by layer", "", ticks),
                {1100, 180 + 34 * static_cast<int>(budget.topics.size())});
}

}  // namespace

void plot_masks(const MaskStudy& study, const MaskStudyOptions& options, const std::filesystem::path& folder,
                const std::string& ending) {
  for (const BudgetMasks& budget : study.budgets) {
    for (const TextMasks& text : budget.texts) {
      if (text.similarity.across_pairs == 0) continue;
      write_gnuplot(
          folder / fmt::format("similarity-{}-{}.{}", file_name_of(text.text), file_name_of(budget.budget),
                               ending),
          heatmap(
              text.cosine_QQ,
              fmt::format("{}: cosine between the masks of segments, budget {}", text.text, budget.budget),
              "segment", "segment", "set size ratio 1\nset cbrange [0:1]\n" + topic_borders(text.topics)),
          {760, 700});
    }
    write_gnuplot(folder / fmt::format("load-{}.{}", file_name_of(budget.budget), ending),
                  heatmap(budget.load_LE,
                          fmt::format("Share of segments that choose an expert, budget {}", budget.budget),
                          "expert", "MoE layer", "set cbrange [0:*]\nset ytics 1\n"),
                  {1000, 360});
    plot_topics(budget, folder, ending);
  }
  // Budgets have rates at the same lengths, those that leave a text two segments.
  if (study.budgets.empty() || std::ranges::none_of(study.budgets.front().hit_rates, has_value)) return;
  std::string blocks;
  std::string plots;
  for (size_t i = 0; i < study.budgets.size(); ++i) {
    blocks += fmt::format("$rates{} << EOD\n", i);
    for (size_t j = 0; j < options.hit_rate_lengths.size(); ++j) {
      const std::optional<double>& rate = study.budgets[i].hit_rates[j];
      if (rate) blocks += fmt::format("{} {}\n", options.hit_rate_lengths[j], *rate);
    }
    blocks += "EOD\n";
    plots +=
        fmt::format("{}$rates{} using 1:2 with linespoints pt 7 lw 2 lc rgb {} title {}",
                    i == 0 ? "plot " : ", ", i, gnuplot_color(i), gnuplot_quoted(study.budgets[i].budget));
  }
  write_gnuplot(folder / ("hit_rate." + ending),
                blocks +
                    "set title 'Experts kept from one segment to the next'\nset xlabel 'tokens a segment'\n"
                    "set ylabel 'hit rate'\nset yrange [0:1]\nset logscale x 2\nset grid\n" +
                    plots + "\n");
}

}  // namespace smoe
