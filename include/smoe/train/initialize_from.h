// Initial weights out of another run's checkpoint: how fine-tuning starts from a pre-trained model.
#pragma once

#include "smoe/data/tokenizer.h"
#include "smoe/model/model.h"
#include "smoe/train/train_config.h"

namespace smoe {

// Checks config.initialize_from without loading it: that the checkpoint is complete, undamaged, and was
// trained with the same tokenizer or one whose every entry `tokenizer` has under the same id (tokens may be
// added). Throws CheckpointError.
void check_initial_checkpoint(const TrainConfig& config, const Tokenizer& tokenizer);

// The same check, then copies the weights into `model`. Every tensor must be there in the model's shape, and
// no other: budgets may differ in their k, but not in number where they have size embeddings. Throws
// CheckpointError that lists all misfits. Other differences of the model config are logged.
void initialize_from_checkpoint(const TrainConfig& config, const Tokenizer& tokenizer, Model& model);

}  // namespace smoe
