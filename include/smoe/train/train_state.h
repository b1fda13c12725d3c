// Everything a run needs to go on, besides weights, optimizer moments and config. There is no random
// generator with a state: every random number of a step is a function of the seeds in the config and of these
// counters.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace smoe {

// A return to an earlier checkpoint because of a loss that was not finite or jumped.
struct RollbackRecord {
  int64_t failed_step = 0;    // whose update was not made
  int64_t to_step = 0;        // of the checkpoint
  int64_t from_position = 0;  // the sequences [from_position, to_position) were left out
  int64_t to_position = 0;
};

struct TrainState {
  int64_t step = 0;                            // optimizer steps done
  int64_t position = 0;                        // next sequence in the global order of the data
  int64_t tokens = 0;                          // target tokens seen, each sequence counted once
  int64_t processed_tokens = 0;                // tokens of all replicas
  int64_t skipped_steps = 0;                   // updates left out as outliers
  double seconds = 0.0;                        // time spent in training, over all parts of the run
  std::optional<double> best_validation_loss;  // mean over budgets and sources
  int64_t best_validation_step = 0;
  int64_t last_validation_step = 0;
  int64_t last_evaluation_step = 0;
  std::vector<double> outlier_losses;  // window of the outlier detector, oldest first
  std::vector<double> outlier_norms;
  std::vector<double> spike_losses;  // window of the spike detector, oldest first
  std::vector<RollbackRecord> rollbacks;

  int64_t seed = 0;
  std::string data_fingerprint;
  std::string tokenizer_hash;
  std::string config_hash;
  std::string code_version;
};

// train_state.json.
std::string train_state_to_json(const TrainState& state);
// Throws CheckpointError naming the path and the key that is missing or of the wrong type.
TrainState read_train_state(const std::filesystem::path& path);

}  // namespace smoe
