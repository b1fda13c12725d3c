// Checkpoints and folders for the tests of the interchange area.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "smoe/core/error.h"
#include "smoe/core/json.h"
#include "smoe/data/tokenizer.h"
#include "smoe/model/checkpoint_reader.h"
#include "smoe/model/inspect.h"
#include "smoe/model/model.h"
#include "smoe/model/safetensors.h"

namespace smoe::testing {

inline std::filesystem::path golden_folder() {
  return std::filesystem::path(SMOE_SOURCE_DIR) / "tests/golden/interchange";
}

inline std::filesystem::path tokenizer_folder() {
  return std::filesystem::path(SMOE_SOURCE_DIR) / "tests/golden/tokenizers";
}

// The struct that holds a run's model section, as training writes it.
struct RunConfig {
  ModelConfig model;
};
template <class Visitor>
void visit_fields(Visitor& visitor, RunConfig& config) {
  visitor.field("model", config.model, "architecture and sizes");
}

// A checkpoint of `model`, with a tokenizer where one is given.
inline void write_checkpoint(const std::filesystem::path& folder, const Model& model,
                             const std::filesystem::path& tokenizer = {}, const std::string& chat = "") {
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.yaml")
      << dump_config(RunConfig{model.config()}) << "data:\n  sequence_length: 64\n";
  TensorList tensors;
  for (const NamedParameter& parameter : model.parameters()) {
    tensors.emplace_back(parameter.name, parameter.tensor);
  }
  write_safetensors(folder / "model.safetensors", tensors);
  if (!tokenizer.empty()) {
    const bool is_json = tokenizer.extension() == ".json";
    std::filesystem::copy_file(tokenizer, folder / (is_json ? "tokenizer.json" : "tokenizer.model"));
  }
  if (!chat.empty()) std::ofstream(folder / "chat_template.yaml") << chat;
  write_checksums(folder);
}

template <class Action>
std::string error_of(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

inline at::Tensor checkpoint_logits(const std::filesystem::path& checkpoint, const at::Tensor& tokens_BT,
                                    const std::string& budget = "") {
  LogitsRequest request;
  request.tokens_BT = tokens_BT;
  request.budget = budget;
  return compute_logits(load_model(checkpoint, at::kCPU), request).logits_BTV;
}

}  // namespace smoe::testing
