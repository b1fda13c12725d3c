#include "smoe/train/train_state.h"

#include <nlohmann/json.hpp>

#include "smoe/core/error.h"
#include "smoe/core/files.h"

namespace smoe {
namespace {

constexpr int kFormatVersion = 1;

// One list of fields for both directions. `visit(key, field)` reads or writes one of them.
template <class State, class Visit>
void visit_state(State& state, Visit&& visit) {
  visit("step", state.step);
  visit("position", state.position);
  visit("tokens", state.tokens);
  visit("processed_tokens", state.processed_tokens);
  visit("skipped_steps", state.skipped_steps);
  visit("seconds", state.seconds);
  visit("best_validation_step", state.best_validation_step);
  visit("last_validation_step", state.last_validation_step);
  visit("outlier_losses", state.outlier_losses);
  visit("outlier_norms", state.outlier_norms);
  visit("seed", state.seed);
  visit("data_fingerprint", state.data_fingerprint);
  visit("tokenizer_hash", state.tokenizer_hash);
  visit("config_hash", state.config_hash);
  visit("code_version", state.code_version);
}

}  // namespace

std::string train_state_to_json(const TrainState& state) {
  nlohmann::ordered_json json;
  json["format_version"] = kFormatVersion;
  visit_state(state, [&](const char* key, const auto& field) { json[key] = field; });
  json["best_validation_loss"] = nullptr;
  if (state.best_validation_loss) json["best_validation_loss"] = *state.best_validation_loss;
  return json.dump(2) + "\n";
}

TrainState read_train_state(const std::filesystem::path& path) {
  const nlohmann::json json = nlohmann::json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
  SMOE_CHECK(CheckpointError, json.is_object(), "{}: not a JSON object; the checkpoint is damaged",
             path.string());
  const int version = json.value("format_version", 0);
  SMOE_CHECK(CheckpointError, version == kFormatVersion,
             "{}: format_version {} is not supported (this program reads {}); use the program that wrote it",
             path.string(), version, kFormatVersion);
  TrainState state;
  const auto read = [&](const char* key, auto& field) {
    try {
      json.at(key).get_to(field);
    } catch (const nlohmann::json::exception& error) {
      throw CheckpointError(fmt::format("{}: key {} cannot be read ({}); the checkpoint is damaged",
                                        path.string(), key, error.what()));
    }
  };
  visit_state(state, read);
  if (json.contains("best_validation_loss") && !json["best_validation_loss"].is_null()) {
    read("best_validation_loss", state.best_validation_loss.emplace());
  }
  SMOE_CHECK(CheckpointError, state.outlier_losses.size() == state.outlier_norms.size(),
             "{}: outlier_losses has {} values, outlier_norms {}; the checkpoint is damaged", path.string(),
             state.outlier_losses.size(), state.outlier_norms.size());
  return state;
}

}  // namespace smoe
