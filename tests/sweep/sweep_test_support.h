// A small sweep and programs that stand for smoe-train and smoe-eval, for tests of what is done around them.
#pragma once

#include <string>

#include "smoe/sweep/sweep_plan.h"
#include "temporary_folder.h"

namespace smoe::testing {

// A config that is valid but names data that is not there: nothing in these tests reads it.
inline constexpr const char* kBaseConfig = R"(model:
  architecture: stepped_moe
  vocab_size: 260
  dim: 32
  num_heads: 2
  num_kv_heads: 1
  head_dim: 16
  num_dense_layers: 1
  dense_ffn_dim: 48
  num_moe_layers: 2
  num_experts: 8
  expert_dim: 12
  budgets:
    - {name: 1B, experts_per_layer: 1}
    - {name: 2B, experts_per_layer: 3}
data:
  tokenizer: tokenizer.json
  train: [{name: one, path: one}]
  validation: [{name: held, path: held}]
  sequence_length: 16
run_folder: run
steps: 10
batch_size: 4
micro_batch_size: 2
schedule: {warmup_steps: 0}
)";

inline std::filesystem::path write_sweep(const TemporaryFolder& folder, const std::string& rest) {
  folder.write("base.yaml", kBaseConfig);
  return folder.write("sweep.yaml", "base: base.yaml\nfolder: " + (folder / "sweep").string() + "\n" + rest);
}

// Programs that write a metrics file and a results file whose numbers follow from the seed, and that note
// each call in FOLDER/calls. `train_extra` is put into the training program before it writes.
inline void write_programs(const TemporaryFolder& folder, const std::string& train_extra = "") {
  const std::string calls = (folder / "calls").string();
  folder.write(
      "bin/smoe-train",
      "#!/bin/bash\nset -e\n"
      "run=$(sed -n 's/^run_folder: //p' \"$1\" | tr -d '\"')\n"
      "seed=$(sed -n 's/^seed: //p' \"$1\")\n"
      "steps=$(sed -n 's/^steps: //p' \"$1\")\n"
      "length=$(sed -n 's/^ *segment_length: //p' \"$1\")\n"
      "echo \"train $(basename \"$run\") ${@:2}\" >> " +
          calls + "\nmkdir -p \"$run\"\n" + train_extra +
          "\necho '{\"kind\":\"train\",\"step\":'$steps',\"seconds\":20.0}' > \"$run/metrics.jsonl\"\n"
          "echo '{\"kind\":\"validation\",\"step\":'$steps',\"mean_loss\":2.5,\"sources\":{"
          "\"held\":{\"loss\":{\"1B\":'$seed'.5,\"2B\":'$length'.25},\"bits_per_byte\":{\"1B\":1,\"2B\":1}},"
          "\"also\":{\"loss\":{\"1B\":'$seed'.7,\"2B\":'$length'.75},\"bits_per_byte\":{\"1B\":3,\"2B\":2}}},"
          "\"router\":{\"1B\":{\"load_entropy\":0.9},\"2B\":{\"load_entropy\":0.8}}}' "
          ">> \"$run/metrics.jsonl\"\n");
  folder.write(
      "bin/smoe-eval",
      "#!/bin/bash\nset -e\nwhile [ $# -gt 0 ]; do [ \"$1\" = --out ] && out=$2; "
      "[ \"$1\" = --checkpoint ] && run=$2; shift; done\n"
      "echo \"eval $(basename \"$run\")\" >> " +
          calls +
          "\ncat > \"$out\" <<'RESULTS'\n"
          "{\"budgets\":[{\"name\":\"1B\"},{\"name\":\"2B\"}],\"tasks\":{\"piqa\":{\"primary\":\"acc\","
          "\"metrics\":{\"acc\":{\"is_share\":true,\"budgets\":{\"1B\":{\"value\":0.5},\"2B\":{\"value\":0."
          "625}}}}}},"
          "\"groups\":{\"both\":{\"is_share\":true,\"budgets\":{\"1B\":{\"value\":0.25},\"2B\":{\"value\":0."
          "75}}}}}\n"
          "RESULTS\n");
  for (const char* name : {"smoe-train", "smoe-eval"}) {
    std::filesystem::permissions(folder / "bin" / name, std::filesystem::perms::owner_all);
  }
}

}  // namespace smoe::testing
