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

// Fields that checkpoints of earlier versions lack.
template <class State, class Visit>
void visit_newer_fields(State& state, Visit&& visit) {
  visit("spike_losses", state.spike_losses);
  visit("rollbacks", state.rollbacks);
  visit("last_evaluation_step", state.last_evaluation_step);
}

}  // namespace

// Found by name through nlohmann_json.
static void to_json(nlohmann::ordered_json& json, const RollbackRecord& record) {
  json = {{"failed_step", record.failed_step},
          {"to_step", record.to_step},
          {"from_position", record.from_position},
          {"to_position", record.to_position}};
}

static void from_json(const nlohmann::json& json, RollbackRecord& record) {
  json.at("failed_step").get_to(record.failed_step);
  json.at("to_step").get_to(record.to_step);
  json.at("from_position").get_to(record.from_position);
  json.at("to_position").get_to(record.to_position);
}

std::string train_state_to_json(const TrainState& state) {
  nlohmann::ordered_json json;
  json["format_version"] = kFormatVersion;
  const auto write = [&](const char* key, const auto& field) { json[key] = field; };
  visit_state(state, write);
  visit_newer_fields(state, write);
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
  visit_newer_fields(state, [&](const char* key, auto& field) {
    if (json.contains(key)) read(key, field);
  });
  if (json.contains("best_validation_loss") && !json["best_validation_loss"].is_null()) {
    read("best_validation_loss", state.best_validation_loss.emplace());
  }
  SMOE_CHECK(CheckpointError, state.outlier_losses.size() == state.outlier_norms.size(),
             "{}: outlier_losses has {} values, outlier_norms {}; the checkpoint is damaged", path.string(),
             state.outlier_losses.size(), state.outlier_norms.size());
  return state;
}

}  // namespace smoe
