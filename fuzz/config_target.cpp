// YAML of a training run: whatever is accepted must read back from its own dump as the same config.
#include "fuzz_target.h"
#include "smoe/core/config.h"
#include "smoe/train/train_config.h"

namespace smoe::fuzz {

void config(std::string_view input) {
  TrainConfig config;
  if (!accepts([&] { config = config_from_yaml<TrainConfig>(input, "input.yaml"); })) return;
  const std::string dump = dump_config(config);
  const auto again = config_from_yaml<TrainConfig>(dump, "dump.yaml");
  if (dump_config(again) != dump) fail("a dumped config reads back as another one:\n" + dump);
}

}  // namespace smoe::fuzz
