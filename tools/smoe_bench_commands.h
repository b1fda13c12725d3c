// The subcommands of smoe-bench about training and forward speed.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <vector>

struct BenchCommand {
  CLI::App* command = nullptr;
  std::function<int()> run;  // after parsing, if the command was given
};

std::vector<BenchCommand> add_training_benches(CLI::App& app);
