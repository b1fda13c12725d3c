// Opens the data that the task of a run needs: token stores for pre-training, dialogues for fine-tuning.
#pragma once

#include <memory>
#include <vector>

#include "smoe/data/tokenizer.h"
#include "smoe/data/training_data.h"
#include "smoe/train/checkpoint_writer.h"
#include "smoe/train/train_config.h"

namespace smoe {

// Both throw what TrainingData and ValidationData throw.
TrainingData open_training_data(const TrainConfig& config, const Tokenizer& tokenizer);
std::unique_ptr<ValidationData> open_validation_data(const TrainConfig& config, const SourceConfig& source,
                                                     const Tokenizer& tokenizer);

// What a checkpoint needs besides the tokenizer's file to use its tokenizer and template again:
// chat_template.yaml (task sft), and special_tokens_map.json where the tokenizer's file does not say what BOS
// and EOS are.
std::vector<CheckpointFile> run_files(const TrainConfig& config, const Tokenizer& tokenizer);

}  // namespace smoe
