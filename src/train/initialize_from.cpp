#include "smoe/train/initialize_from.h"

#include <algorithm>
#include <memory>

#include "smoe/core/error.h"
#include "smoe/core/log.h"
#include "smoe/model/checkpoint_reader.h"
#include "smoe/train/config_difference.h"

namespace smoe {
namespace {

namespace fs = std::filesystem;

void check_tokenizer(const fs::path& checkpoint, const Tokenizer& tokenizer) {
  const std::unique_ptr<Tokenizer> old = load_tokenizer(checkpoint_tokenizer(checkpoint));
  if (old->hash() == tokenizer.hash()) return;
  const int64_t common = std::min(old->vocab_size(), tokenizer.vocab_size());
  for (int32_t id = 0; id < common; ++id) {
    SMOE_CHECK(CheckpointError, old->token(id) == tokenizer.token(id),
               "initialize_from {}: token {} is `{}` in the tokenizer of the checkpoint and `{}` in {}: the "
               "embeddings would get another meaning. Use the checkpoint's tokenizer, or one that only adds "
               "tokens to it",
               checkpoint.string(), id, old->token(id), tokenizer.token(id), tokenizer.path().string());
  }
  SMOE_CHECK(
      CheckpointError, old->vocab_size() == common,
      "initialize_from {}: the tokenizer of the checkpoint has {} entries, {} only {}. Use the checkpoint's "
      "tokenizer, or one that only adds tokens to it",
      checkpoint.string(), old->vocab_size(), tokenizer.path().string(), tokenizer.vocab_size());
  spdlog::warn(
      "initialize_from: {} is another tokenizer than the checkpoint's; all {} entries of that one are "
      "the same, {} are added",
      tokenizer.path().string(), common, tokenizer.vocab_size() - common);
}

void log_model_changes(const fs::path& checkpoint, const ModelConfig& model) {
  const ModelConfig old = read_checkpoint_model_config(checkpoint);
  for (const ConfigDifference& change : config_differences(dump_config(old), dump_config(model))) {
    spdlog::warn("initialize_from: model.{} was {} in the checkpoint and is now {}", change.key,
                 change.before, change.after);
  }
}

}  // namespace

void check_initial_checkpoint(const TrainConfig& config, const Tokenizer& tokenizer) {
  const fs::path checkpoint = resolve_checkpoint(config.initialize_from);
  verify_checkpoint(checkpoint);
  check_tokenizer(checkpoint, tokenizer);
}

void initialize_from_checkpoint(const TrainConfig& config, const Tokenizer& tokenizer, Model& model) {
  const fs::path checkpoint = resolve_checkpoint(config.initialize_from);
  check_initial_checkpoint(config, tokenizer);
  try {
    load_model_weights(checkpoint, model);
  } catch (const CheckpointError& error) {
    throw CheckpointError(fmt::format(
        "initialize_from {}: the checkpoint does not fit the `model` section of this run. Make the "
        "section like that of {}, or choose another checkpoint.\n{}",
        checkpoint.string(), (checkpoint / "config.yaml").string(), error.what()));
  }
  log_model_changes(checkpoint, model.config());
  spdlog::info("initial weights from {}", checkpoint.string());
}

}  // namespace smoe
