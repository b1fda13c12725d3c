#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "smoe/bench/scaling_bench.h"
#include "smoe/bench/training_bench.h"
#include "smoe/core/available_cores.h"
#include "smoe/core/files.h"
#include "smoe/model/device.h"
#include "smoe_bench_commands.h"

namespace {

struct Arguments {
  smoe::ConfigSource config;
  int64_t repetitions = 5;
  int64_t threads = 0;
  std::vector<int64_t> segment_lengths = {16, 32};
  std::vector<double> temperatures = {1.0, 0.3, 0.1, 0.03};
  std::vector<std::string> axes = {"k", "S", "E", "length", "batch", "threads"};
  std::string budget;
  bool only_library = false;
  std::vector<std::string> stock;  // empty: all
  bool no_peak = false;
  std::filesystem::path json;

  smoe::SpeedOptions options() const {
    smoe::SpeedOptions options;
    options.config = smoe::read_config<smoe::BenchConfig>(config);
    options.repetitions = repetitions;
    if (only_library) options.stock.clear();
    if (!stock.empty()) {
      std::erase_if(options.stock, [this](smoe::StockExperts experts) {
        return std::find(stock.begin(), stock.end(), smoe::stock_name(experts)) == stock.end();
      });
    }
    options.measure_peak = !no_peak;
    return options;
  }
};

std::shared_ptr<Arguments> add_common(CLI::App& command) {
  auto arguments = std::make_shared<Arguments>();
  command
      .add_option("config", arguments->config.file, "YAML with `model` and `bench`: configs/bench/tiny.yaml")
      ->required();
  command.add_option("--set", arguments->config.overrides, "override: --set bench.sequences=8")
      ->take_all()
      ->expected(1);
  command.add_option("--repetitions", arguments->repetitions, "measured turns of every contestant")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command.add_option("--threads", arguments->threads, "computing threads; default: all cores");
  command.add_flag("--no-peak", arguments->no_peak, "without the matmul, and without shares of its peak");
  command.add_option("--json", arguments->json, "also write one JSON object a row to this file");
  return arguments;
}

int print(const Arguments& arguments, const smoe::SpeedReport& report) {
  fmt::print("{}", smoe::speed_table(report));
  if (!arguments.json.empty()) smoe::write_file_atomically(arguments.json, smoe::speed_json_lines(report));
  return 0;
}

int scale(const Arguments& arguments) {
  smoe::ScalingBenchOptions options;
  options.config = smoe::read_config<smoe::BenchConfig>(arguments.config);
  options.axes.clear();
  for (const std::string& axis : arguments.axes) {
    options.axes.push_back(smoe::enum_from_name<smoe::ScalingAxis>(axis).value());
  }
  options.budget = arguments.budget;
  options.max_threads = arguments.threads > 0 ? arguments.threads : smoe::available_cores();
  options.repetitions = arguments.repetitions;
  options.measure_peak = !arguments.no_peak;
  const smoe::SpeedReport report = smoe::run_scaling_bench(options);
  fmt::print("{}", smoe::scaling_tables(report));
  if (!arguments.json.empty()) smoe::write_file_atomically(arguments.json, smoe::speed_json_lines(report));
  return 0;
}

}  // namespace

std::vector<BenchCommand> add_training_benches(CLI::App& app) {
  std::vector<BenchCommand> commands;
  const auto add = [&](const char* name, const char* description, const auto& run) {
    CLI::App* command = app.add_subcommand(name, description);
    const std::shared_ptr<Arguments> arguments = add_common(*command);
    commands.push_back({command, [arguments, run] {
                          smoe::set_num_threads(arguments->threads);
                          return run(*arguments);
                        }});
    return std::pair(command, arguments);
  };
  const auto add_stock_flag = [](const auto& added) {
    added.first->add_flag("--only-library", added.second->only_library, "leave the stock compositions out");
    added.first->add_option("--stock", added.second->stock, "compositions to measure; default: all")
        ->check(CLI::IsMember({"masked-dense", "gather-bmm", "grouped-mm"}));
  };
  add_stock_flag(add("train", "an optimizer step beside compositions of LibTorch's operators",
                     [](const Arguments& arguments) {
                       return print(arguments, smoe::run_train_bench(arguments.options()));
                     }));
  add_stock_flag(add("forward", "forward and cross-entropy at every budget, beside the same compositions",
                     [](const Arguments& arguments) {
                       return print(arguments, smoe::run_forward_bench(arguments.options()));
                     }));
  const auto budgets =
      add("budgets", "forward and backward at every budget beside the dense model of equal active size",
          [](const Arguments& arguments) {
            return print(arguments, smoe::run_budget_bench(arguments.options(), arguments.segment_lengths));
          });
  budgets.first->add_option("--segment-lengths", budgets.second->segment_lengths, "S of the stepped rows")
      ->capture_default_str();
  const auto soft = add("softtopk", "SoftTopK beside an iteration of 20 rounds under autograd",
                        [](const Arguments& arguments) {
                          const smoe::SoftTopKReport report =
                              smoe::run_soft_top_k_bench(arguments.options(), arguments.temperatures);
                          fmt::print("{}", smoe::accuracy_table(report));
                          return print(arguments, report.speed);
                        });
  const auto scaling = add("scaling", "what a training step costs along one axis at a time",
                           [](const Arguments& arguments) { return scale(arguments); });
  scaling.first->add_option("--axes", scaling.second->axes, "k, S, E, length, batch, threads")
      ->capture_default_str()
      ->delimiter(',')
      ->check(CLI::IsMember(scaling.second->axes));
  scaling.first->add_option("--budget", scaling.second->budget,
                            "by name or k; default: the one in the middle");
  soft.first->add_option("--temperatures", soft.second->temperatures, "of SoftTopK")->capture_default_str();
  return commands;
}
