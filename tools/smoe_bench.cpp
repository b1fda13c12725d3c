// smoe-bench: measurements on this machine. `train`, `forward`, `budgets`, `softtopk` and `scaling` hold this
// library against compositions of LibTorch's own operators, and against itself (smoe_bench_training.cpp).
// `data` measures tokenizing and loading (smoe_bench_data.cpp), `eval` scoring (smoe_bench_evaluation.cpp).
// `decode` compares a dense model in memory with Stepped and vanilla MoE models whose experts are on disk.
#include <ATen/Parallel.h>

#include <CLI/CLI.hpp>

#include "command_line.h"
#include "smoe/core/files.h"
#include "smoe/core/tool.h"
#include "smoe/infer/decode_bench.h"
#include "smoe/infer/streaming_model.h"
#include "smoe_bench_commands.h"

int main(int argc, char** argv) {
  CLI::App app("Measures training, forward passes, decoding, data and evaluation on this machine.");
  app.require_subcommand(1);
  CLI::App* decode =
      app.add_subcommand("decode", "dense, stepped and vanilla models of the same active size");
  smoe::ConfigSource model, store;
  smoe::DecodeBenchOptions options;
  std::vector<std::string> memory_limits;
  std::string dtype = "fp32", resident_dtype = "fp32";
  std::filesystem::path json;
  int threads = 0;
  decode->add_option("--model", model.file, "YAML of a Stepped MoE")->required();
  decode->add_option("--set", model.overrides, "override of the model")->take_all()->expected(1);
  decode->add_option("--work-folder", options.work_folder, "folder on the disk to measure")->required();
  decode->add_option("--dtype", dtype, "how experts are stored")
      ->capture_default_str()
      ->check(CLI::IsMember({"fp32", "bf16", "int8"}));
  decode
      ->add_option("--resident-dtype", resident_dtype,
                   "how weights in memory are stored, the dense model's too")
      ->capture_default_str()
      ->check(CLI::IsMember({"fp32", "bf16", "int8"}));
  decode->add_option("--batch-sizes", options.batch_sizes, "rows together, with all weights in memory")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  decode->add_option("--budgets", options.budgets, "by name or k; default: all");
  decode->add_option("--segment-lengths", options.segment_lengths, "S of the stepped rows")
      ->capture_default_str();
  decode->add_option(
      "--memory-limits", memory_limits,
      "for routed experts: choice (one whole choice) or 512MiB ...; none: models in memory only");
  decode->add_option("--expert-option", store.overrides, "of the store: backend=threads, eviction=lru ...")
      ->take_all()
      ->expected(1);
  decode->add_option("--tokens", options.num_tokens, "tokens to measure")->capture_default_str();
  decode->add_option("--vanilla-tokens", options.vanilla_tokens, "tokens to measure of the vanilla model")
      ->capture_default_str();
  decode->add_flag("!--only-library", options.stock, "leave the compositions of LibTorch's operators out");
  decode->add_option("--threads", threads, "computing threads; default: all cores");
  decode->add_option("--json", json, "one JSON object a row");
  std::vector<BenchCommand> benches = add_training_benches(app);
  benches.push_back(add_data_bench(app));
  benches.push_back(add_evaluation_bench(app));
  if (const auto status = smoe::parse_command_line(app, argc, argv)) return *status;
  for (const BenchCommand& bench : benches) {
    if (bench.command->parsed()) return smoe::run_tool(bench.run);
  }

  return smoe::run_tool([&] {
    if (threads > 0) at::set_num_threads(threads);
    options.model = smoe::read_model_config(model);
    // In the long run every expert has been checked once.
    store.overrides.insert(store.overrides.begin(), "checksums=never");
    options.store = smoe::read_config<smoe::ExpertStoreConfig>(store);
    options.encoding = smoe::enum_from_name<smoe::ExpertEncoding>(dtype).value();
    options.resident_encoding = smoe::enum_from_name<smoe::ExpertEncoding>(resident_dtype).value();
    if (!memory_limits.empty()) options.memory_limits.clear();
    for (const std::string& limit : memory_limits) {
      if (limit == "none") continue;
      options.memory_limits.push_back(limit == "choice" ? 0 : smoe::parse_byte_count(limit));
    }
    const auto report =
        smoe::run_decode_bench(options, [](const std::string& line) { fmt::print(stderr, "{}\n", line); });
    fmt::print("{}", smoe::decode_bench_table(report));
    if (!json.empty()) smoe::write_file_atomically(json, smoe::decode_bench_json_lines(report));
    return 0;
  });
}
