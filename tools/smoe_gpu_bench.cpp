// smoe-gpu-bench: tokens a second and share of the peak of training passes, attention and routed experts on a
// GPU.
#include <CLI/CLI.hpp>

#include "command_line.h"
#include "smoe/bench/device_bench.h"
#include "smoe/core/files.h"
#include "smoe/core/tool.h"
#include "smoe/model/device.h"

int main(int argc, char** argv) {
  CLI::App app("Measures training passes, attention and routed experts on a GPU.");
  smoe::DeviceBenchOptions options;
  smoe::ConfigSource model;
  std::string device = "cuda";
  std::string dtype = "bf16";
  std::string policy = "none";
  std::filesystem::path json;
  app.add_option("--model", model.file, "YAML of a Stepped MoE; the dense and vanilla models follow from it")
      ->required();
  app.add_option("--set", model.overrides, "override of the model: dim=1024")->take_all()->expected(1);
  app.add_option("--device", device, "cuda, cuda:N, or cpu to try it")->capture_default_str();
  app.add_option("--dtype", dtype, "of weights and activations")
      ->capture_default_str()
      ->check(CLI::IsMember({"fp32", "bf16"}));
  app.add_option("--activation-checkpointing", policy, "layers to recompute")
      ->capture_default_str()
      ->check(CLI::IsMember({"none", "all", "every_n", "moe_only", "dense_only"}));
  app.add_option("--sequences", options.sequences, "sequences a pass")->capture_default_str();
  app.add_option("--sequence-length", options.sequence_length, "tokens a sequence; a multiple of 4")
      ->capture_default_str();
  app.add_option("--seconds", options.seconds_each, "to measure each row, at least")->capture_default_str();
  app.add_option("--peak-tflops", options.peak_tflops,
                 "of the GPU in this type, for the MFU; 0: leave it out")
      ->capture_default_str();
  app.add_option("--json", json, "file that receives the rows");
  if (const auto status = smoe::parse_command_line(app, argc, argv)) return *status;

  return smoe::run_tool([&] {
    options.device = smoe::resolve_device(device);
    options.dtype = smoe::enum_from_name<smoe::TrainDtype>(dtype).value();
    options.activation_checkpointing.policy = smoe::enum_from_name<smoe::CheckpointedLayers>(policy).value();
    options.model = smoe::read_model_config(model);
    const auto rows = smoe::run_device_bench(options, [](const smoe::DeviceBenchRow& row) {
      fmt::print(stderr, "{}: {:.3f} ms\n", row.name, row.milliseconds);
    });
    fmt::print("{}", smoe::device_bench_table(rows));
    if (!json.empty()) smoe::write_file_atomically(json, smoe::device_bench_json(options, rows));
    return 0;
  });
}
