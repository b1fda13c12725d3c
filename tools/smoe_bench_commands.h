// The subcommands of smoe-bench, one group a source file.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <vector>

struct BenchCommand {
  CLI::App* command = nullptr;
  std::function<int()> run;  // after parsing, if the command was given
};

std::vector<BenchCommand> add_training_benches(CLI::App& app);  // train, forward, budgets, softtopk, scaling
BenchCommand add_data_bench(CLI::App& app);
BenchCommand add_evaluation_bench(CLI::App& app);
