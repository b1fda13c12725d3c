#include "smoe/train/run_data.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "smoe/data/chat_template.h"

namespace smoe {

TrainingData open_training_data(const TrainConfig& config, const Tokenizer& tokenizer) {
  if (config.task == TrainTask::kSft) {
    return TrainingData(config.data, config.sft, tokenizer, config.model.vocab_size);
  }
  return TrainingData(config.data, tokenizer.hash(), config.model.vocab_size);
}

std::unique_ptr<ValidationData> open_validation_data(const TrainConfig& config, const SourceConfig& source,
                                                     const Tokenizer& tokenizer) {
  if (config.task == TrainTask::kSft) {
    return std::make_unique<ValidationData>(source, config.data, config.sft, tokenizer,
                                            config.model.vocab_size);
  }
  return std::make_unique<ValidationData>(source, config.data, tokenizer.hash(), config.model.vocab_size);
}

std::vector<CheckpointFile> run_files(const TrainConfig& config, const Tokenizer& tokenizer) {
  std::vector<CheckpointFile> files;
  if (config.task == TrainTask::kSft) {
    files.push_back({kChatTemplateFile, dump_config(load_chat_template(config.sft.chat_template))});
  }
  if (tokenizer.path().extension() == ".json") {
    const auto spelling = [&](std::optional<int32_t> id) {
      return id ? nlohmann::json(tokenizer.token(*id)) : nlohmann::json();
    };
    const nlohmann::json map = {{"bos_token", spelling(tokenizer.bos_id())},
                                {"eos_token", spelling(tokenizer.eos_id())}};
    files.push_back({"special_tokens_map.json", map.dump(2) + "\n"});
  }
  return files;
}

}  // namespace smoe
