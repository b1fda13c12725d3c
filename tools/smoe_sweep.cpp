// smoe-sweep: runs ablations: a base config, what is varied over it, and tables of the results.
#include <CLI/CLI.hpp>

#include "command_line.h"
#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/core/gnuplot.h"
#include "smoe/core/log.h"
#include "smoe/core/tool.h"
#include "smoe/sweep/run_state.h"
#include "smoe/sweep/sweep_runner.h"
#include "smoe/sweep/sweep_table.h"

namespace {

// The exit code of a sweep of which some runs failed.
constexpr int kIncomplete = 6;

struct Arguments {
  std::string file;
  std::vector<std::string> overrides;
  smoe::SweepRunOptions run;
  bool dry_run = false;
  bool print_slurm = false;
  bool print_config = false;
  std::string format = "terminal";
  std::string against;
  std::string out;
};

void add_sweep(CLI::App& command, Arguments& arguments) {
  command.add_option("sweep", arguments.file, "YAML of the sweep")->required();
  command
      .add_option("--set", arguments.overrides,
                  "override of the sweep's config: --set seeds=[1] --set folder=DIR")
      ->take_all()
      ->expected(1);
}

// The folder of this program, where the other tools lie.
std::filesystem::path program_folder() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path();
}

int run(const Arguments& arguments) {
  const smoe::SweepPlan plan = smoe::plan_sweep(arguments.file, arguments.overrides);
  if (arguments.print_slurm) {
    fmt::print(
        "{}", smoe::slurm_script(plan, arguments.file, arguments.overrides, program_folder() / "smoe-sweep"));
    return 0;
  }
  fmt::print("{}", smoe::describe_plan(plan));
  if (arguments.dry_run) return 0;
  const smoe::SweepOutcome outcome = smoe::run_sweep(plan, arguments.run);
  if (outcome.signal != 0) {
    fmt::print("stopped by signal {}; the same command goes on\n", outcome.signal);
    return 128 + outcome.signal;
  }
  fmt::print("{} runs are finished, {} failed\n", outcome.finished, outcome.failed);
  return outcome.failed == 0 ? 0 : kIncomplete;
}

std::string table_text(const smoe::SweepTable& table, const Arguments& arguments) {
  if (arguments.format == "markdown") return smoe::to_markdown(table, arguments.against);
  if (arguments.format == "latex") return smoe::to_latex(table, arguments.against);
  if (arguments.format == "csv") return smoe::to_csv(table);
  return smoe::to_terminal(table, arguments.against);
}

int table(const Arguments& arguments) {
  const smoe::SweepPlan plan = smoe::plan_sweep(arguments.file, arguments.overrides);
  const smoe::SweepTable table = smoe::collect_table(plan);
  if (smoe::is_plot_file(arguments.out)) {
    smoe::plot_table(table, arguments.out);
    return 0;
  }
  const std::string text = table_text(table, arguments);
  if (arguments.out.empty()) {
    fmt::print("{}", text);
  } else {
    smoe::write_file_atomically(arguments.out, text);
  }
  return 0;
}

int status(const Arguments& arguments) {
  const smoe::SweepPlan plan = smoe::plan_sweep(arguments.file, arguments.overrides);
  fmt::print("{}", smoe::describe_progress(plan, arguments.run.jobs));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Runs ablations and makes tables of them.");
  Arguments arguments;
  arguments.run.tools = program_folder();
  app.require_subcommand(0, 1);
  app.add_flag("--print-config", arguments.print_config,
               "print every key of a sweep's YAML with its meaning");

  CLI::App* run_command = app.add_subcommand("run", "train and evaluate what is not finished yet");
  add_sweep(*run_command, arguments);
  run_command->add_option("--jobs", arguments.run.jobs, "runs at a time")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  run_command->add_option("--only", arguments.run.only, "names of runs or rows, or numbers of runs from 0")
      ->delimiter(';');
  run_command->add_flag("--dry-run", arguments.dry_run,
                        "print the runs and how they differ, and start nothing");
  run_command->add_flag("--slurm", arguments.print_slurm, "print a SLURM array script, and start nothing");

  CLI::App* table_command =
      app.add_subcommand("table", "rows x (metric, budget): mean and spread over the seeds");
  add_sweep(*table_command, arguments);
  table_command->add_option("--format", arguments.format, "terminal, markdown, latex or csv")
      ->capture_default_str()
      ->check(CLI::IsMember({"terminal", "markdown", "latex", "csv"}));
  table_command->add_option("--against", arguments.against,
                            "row that the others are compared with, paired by seed");
  table_command->add_option("--out", arguments.out, "file for the table; an .svg or .png is drawn as a plot");

  CLI::App* status_command = app.add_subcommand("status", "how far the runs are, and the time left");
  add_sweep(*status_command, arguments);
  status_command->add_option("--jobs", arguments.run.jobs, "runs at a time, for the estimate")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  if (const auto status = smoe::parse_command_line(app, argc, argv)) return *status;

  return smoe::run_tool([&] {
    smoe::initialize_logging("auto");
    if (arguments.print_config) {
      fmt::print("{}", smoe::describe_config<smoe::SweepConfig>());
      return 0;
    }
    if (run_command->parsed()) return run(arguments);
    if (table_command->parsed()) return table(arguments);
    if (status_command->parsed()) return status(arguments);
    throw smoe::ConfigError("give a command: run, table or status; --help explains them");
  });
}
