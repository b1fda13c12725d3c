#include "smoe/infer/latency_study.h"

#include <algorithm>
#include <cmath>

#include "smoe/core/error.h"
#include "smoe/core/gnuplot.h"
#include "smoe/routing/budgets.h"

namespace smoe {
namespace {

double real(int64_t value) { return static_cast<double>(value); }

// Products with one vector: bound by arithmetic or by reading the weights, whichever is slower.
double matmul_s(double weights, const LatencyHardware& hardware) {
  return std::max(2.0 * weights / hardware.compute_flops,
                  weights * hardware.weight_bits / 8.0 / hardware.memory_bandwidth);
}

double attention_weights(const ModelConfig& config) {
  return 2.0 * real(config.num_heads + config.num_kv_heads) * real(config.head_dim) * real(config.dim);
}

double context_s(const ModelConfig& config, const LatencyHardware& hardware) {
  return 2.0 * real(config.num_kv_heads * config.head_dim) * hardware.kv_bits / 8.0 /
         hardware.memory_bandwidth;
}

double head_s(const ModelConfig& config, const LatencyHardware& hardware) {
  return matmul_s(real(config.vocab_size) * real(config.dim), hardware);
}

// "3B", "2.5B", "700M".
std::string size_name(double parameters) {
  return parameters >= 1e9 ? fmt::format("{:g}B", parameters / 1e9) : fmt::format("{:g}M", parameters / 1e6);
}

void check_options(const ModelConfig& config, const LatencyStudyOptions& options) {
  SMOE_CHECK(ConfigError, config.architecture == Architecture::kSteppedMoe && config.num_moe_layers > 0,
             "the latency study needs a stepped_moe with MoE layers, found architecture {}",
             enum_to_name(config.architecture));
  for (const double rate : options.hit_rates) {
    SMOE_CHECK(ConfigError, rate >= 0.0 && rate <= 1.0, "hit rate {}: allowed are 0 to 1", rate);
  }
  for (const double size : options.dense_sizes) {
    SMOE_CHECK(ConfigError, size > 0.0, "dense size {}: sizes are positive", size);
  }
  for (const auto* counts : {&options.segment_lengths, &options.decode_tokens}) {
    for (const int64_t count : *counts) {
      SMOE_CHECK(ConfigError, count >= 1, "{}: segment lengths and decoding lengths are at least 1", count);
    }
  }
  SMOE_CHECK(ConfigError, options.prompt_tokens >= 0, "prompt tokens {}: at least 0", options.prompt_tokens);
}

struct Line {
  std::string name;
  DecodeCosts costs;
  DecodeScenario scenario;
};

std::vector<Line> make_lines(const ModelConfig& config, const LatencyHardware& hardware,
                             const LatencyStudyOptions& options) {
  std::vector<Line> lines;
  for (const double size : options.dense_sizes) {
    lines.push_back({"dense " + size_name(size), dense_costs(config, size, hardware), {}});
  }
  const int64_t index = options.budget.empty() ? std::max<int64_t>(0, std::ssize(config.budgets) - 2)
                                               : find_budget(config.budgets, options.budget);
  const BudgetConfig& budget = config.budgets[static_cast<size_t>(index)];
  const int64_t k = budget.experts_per_layer;
  lines.push_back({"vanilla " + budget.name,
                   moe_costs(config, k, true, hardware),
                   {.loading = ExpertLoading::kPerToken}});
  for (const int64_t length : options.segment_lengths) {
    lines.push_back({fmt::format("stepped {} S={}", budget.name, length),
                     moe_costs(config, k, false, hardware),
                     {.loading = ExpertLoading::kPerSegment, .segment_length = length}});
  }
  return lines;
}

bool has_hit_rate(const LatencyRow& row, double hit_rate) { return std::abs(row.hit_rate - hit_rate) < 1e-9; }

// A panel without points would be an error of gnuplot that says nothing.
void check_plotted(const std::vector<LatencyRow>& rows, const LatencyPlotOptions& options) {
  SMOE_CHECK(ConfigError,
             std::ranges::any_of(rows, [&](const auto& row) { return has_hit_rate(row, options.hit_rate); }),
             "the plot shows hit rate {:g}, which is not simulated: name one of --hit-rates with "
             "--plot-hit-rate, or add it to --hit-rates",
             options.hit_rate);
  SMOE_CHECK(
      ConfigError,
      std::ranges::any_of(rows, [&](const auto& row) { return row.decode_tokens == options.decode_tokens; }),
      "the plot shows {} decoded tokens, which are not simulated: name one of --tokens with --plot-tokens, "
      "or "
      "add it to --tokens",
      options.decode_tokens);
}

// The rows of one panel, line by line, as gnuplot data blocks and plot clauses.
std::string panel(const std::vector<LatencyRow>& rows, const std::string& name, bool against_length,
                  const LatencyPlotOptions& options) {
  std::string data, clauses;
  std::vector<std::string> lines;
  for (const LatencyRow& row : rows) {
    if (std::ranges::find(lines, row.line) == lines.end()) lines.push_back(row.line);
  }
  for (size_t i = 0; i < lines.size(); ++i) {
    data += fmt::format("${}{} << EOD\n", name, i);
    for (const LatencyRow& row : rows) {
      const bool shown =
          against_length ? has_hit_rate(row, options.hit_rate) : row.decode_tokens == options.decode_tokens;
      if (row.line != lines[i] || !shown) continue;
      data +=
          fmt::format("{} {}\n", against_length ? real(row.decode_tokens) : row.hit_rate, row.ms_per_token);
    }
    data += "EOD\n";
    clauses += fmt::format("{}${}{} using 1:2 with lines lw 2 dt {} lc rgb {} title {}",
                           clauses.empty() ? "plot " : ", \\\n     ", name, i,
                           lines[i].starts_with("dense") ? 2 : 1, gnuplot_color(i), gnuplot_quoted(lines[i]));
  }
  return data + clauses + "\n";
}

}  // namespace

DecodeCosts moe_costs(const ModelConfig& config, int64_t experts_per_layer, bool is_vanilla,
                      const LatencyHardware& hardware) {
  const double expert = 3.0 * real(config.dim) * real(config.expert_dim);
  const double router = real(config.num_experts) * real(config.dim);
  DecodeCosts costs;
  costs.num_moe_layers = config.num_moe_layers;
  const double dense_layer = attention_weights(config) + 3.0 * real(config.dim) * real(config.dense_ffn_dim);
  costs.backbone_s =
      real(config.num_dense_layers) * (matmul_s(dense_layer, hardware) + hardware.layer_overhead_s);
  costs.attention_s =
      matmul_s(attention_weights(config) + (is_vanilla ? router : 0.0), hardware) + hardware.layer_overhead_s;
  costs.experts_s = matmul_s(expert * real(config.num_shared_experts + experts_per_layer), hardware);
  if (!is_vanilla) costs.choice_s = matmul_s(router * real(config.num_moe_layers), hardware);
  costs.head_s = head_s(config, hardware);
  costs.load_s = real(experts_per_layer) * expert * hardware.weight_bits / 8.0 / hardware.storage_bandwidth +
                 hardware.storage_latency_s;
  costs.context_attention_s = context_s(config, hardware);
  costs.context_backbone_s = real(config.num_dense_layers) * context_s(config, hardware);
  return costs;
}

DecodeCosts dense_costs(const ModelConfig& config, double parameters, const LatencyHardware& hardware) {
  DecodeCosts costs;
  costs.backbone_s = matmul_s(parameters, hardware) + real(config.num_layers()) * hardware.layer_overhead_s;
  costs.head_s = head_s(config, hardware);
  costs.context_backbone_s = real(config.num_layers()) * context_s(config, hardware);
  return costs;
}

std::vector<LatencyRow> run_latency_study(const ModelConfig& config, const LatencyHardware& hardware,
                                          const LatencyStudyOptions& options) {
  check_options(config, options);
  std::vector<LatencyRow> rows;
  for (Line& line : make_lines(config, hardware, options)) {
    for (const double hit_rate : options.hit_rates) {
      for (const int64_t tokens : options.decode_tokens) {
        line.scenario.hit_rate = hit_rate;
        line.scenario.num_tokens = tokens;
        line.scenario.prompt_tokens = options.prompt_tokens;
        const DecodeTimes times = simulate_decode(line.costs, line.scenario);
        const double total = times.total_s();
        rows.push_back(
            {line.name, hit_rate, tokens, 1e3 * total / real(tokens), total, times.stall_s / total});
      }
    }
  }
  return rows;
}

std::string latency_csv(const std::vector<LatencyRow>& rows) {
  std::string text = "line,hit_rate,decode_tokens,ms_per_token,total_s,stall_share\n";
  for (const LatencyRow& row : rows) {
    text += fmt::format("{},{:g},{},{:.6g},{:.6g},{:.6g}\n", row.line, row.hit_rate, row.decode_tokens,
                        row.ms_per_token, row.total_s, row.stall_share);
  }
  return text;
}

void plot_latency(const std::vector<LatencyRow>& rows, const LatencyPlotOptions& options) {
  check_plotted(rows, options);
  const std::string common =
      "set ylabel 'ms a token'\nset logscale y\nset yrange [5:]\nset grid lc rgb '#dddddd'\nset key off\n";
  const std::string script =
      fmt::format("set multiplot layout 1,2 title {}\n", gnuplot_quoted(options.title)) + common +
      fmt::format("set logscale x 2\nset xlabel 'tokens decoded (hit rate {:g})'\n", options.hit_rate) +
      panel(rows, "length", true, options) +
      fmt::format("unset logscale x\nset key outside right top\nset xlabel 'hit rate ({} tokens)'\n",
                  options.decode_tokens) +
      panel(rows, "rate", false, options) + "unset multiplot\n";
  write_gnuplot(options.out, script, {1400, 560});
}

}  // namespace smoe
