// The training loop of a run: steps, reports, validation, checkpoints and resuming.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "smoe/data/tokenizer.h"
#include "smoe/data/training_data.h"
#include "smoe/model/model.h"
#include "smoe/train/callbacks.h"
#include "smoe/train/checkpoint_writer.h"
#include "smoe/train/data_parallel.h"
#include "smoe/train/gradient_accumulator.h"
#include "smoe/train/optimizer.h"
#include "smoe/train/outlier_detector.h"
#include "smoe/train/run_folder.h"
#include "smoe/train/train_config.h"
#include "smoe/train/train_state.h"
#include "smoe/train/validation.h"

namespace smoe {

class StopSignal;

struct TrainerOptions {
  bool resume = false;        // go on from the newest checkpoint of the run folder, or start if it has none
  std::string resume_from;    // "previous", or a checkpoint folder; implies resume
  bool console = true;        // training lines on standard output
  bool log_to_folder = true;  // messages also to log.txt in the run folder
  EvaluationHook evaluation;  // optional, called when the config's `evaluation` says so
  std::shared_ptr<Communicator> communicator;  // of a job of several processes (join_job.h); null: one alone
  // Optional: CheckpointWriterOptions::before_file.
  std::function<void(const std::filesystem::path&)> before_checkpoint_file;
};

struct TrainOutcome {
  int signal = 0;  // that ended the run early, after its step was saved; 0: all steps are done
};

class Trainer {
 public:
  // Opens the data, builds the model, and either initialises it or loads a checkpoint. Throws ConfigError,
  // DataError or CheckpointError before anything in an existing run is changed.
  Trainer(TrainConfig config, TrainerOptions options);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  void add_callback(std::unique_ptr<TrainCallback> callback);

  // Trains up to config.steps. On SIGTERM and SIGINT finishes the step, saves and returns. A loss or gradient
  // that is not finite, and a loss spike, roll the run back to a checkpoint or throw NumericError, as
  // config.safety says, before the update and without saving.
  TrainOutcome run();

  Model& model() { return model_; }
  const Optimizer& optimizer() const { return optimizer_; }
  const TrainState& state() const { return state_; }
  const std::filesystem::path& run_folder() const { return folder_.path(); }

 private:
  // What a step leaves for its report.
  struct StepResult {
    StepLosses losses;
    double gradient_norm = 0.0;
    double learning_rate = 0.0;
    bool skipped = false;
    std::vector<RouterStatistics> statistics;
  };
  // Time and tokens since the last report, validation and saving left out.
  struct Stopwatch {
    double seconds = 0.0;
    int64_t unique_tokens = 0;
    int64_t processed_tokens = 0;
  };

  void start_or_resume();
  void initialize_weights();
  void add_default_callbacks();
  void open_log();
  void check_agreement();
  std::string answer_of_main(const std::function<std::string()>& work);
  std::filesystem::path agreed_checkpoint(bool resume);
  std::map<std::string, double> evaluate();
  void note_identity();
  // None if the step failed and the run was rolled back.
  std::optional<StepResult> step_or_roll_back();
  StepResult step();
  StepLosses accumulate_gradients(const Batch& batch, std::vector<RouterStatistics>* statistics);
  void check_finite(const StepLosses& losses, double gradient_norm);
  void check_finite(const ValidationReport& report);
  std::string describe_origin(const std::string& own_failure) const;
  void check_spike(double loss);
  std::string first_non_finite_tensor() const;
  std::string describe_failure(const std::string& tensor, const char* outcome);
  void roll_back(const std::string& reason);
  TrainState load_healthy_checkpoint(const std::string& reason);
  void update_selection_bias(const StepLosses& losses);
  bool is_report_step(int64_t step) const;
  void report_step(const StepResult& result);
  // False if the model turned out to be broken and the run was rolled back.
  bool validate_or_roll_back();
  void validate_if_due();
  void evaluate_if_due();
  void save();
  int agreed_signal(const StepLosses& losses) const;
  TrainOutcome stop_early(int signal);
  void note_outliers();

  TrainConfig config_;
  TrainerOptions options_;
  std::shared_ptr<Communicator> all_;  // all processes of the job
  RunFolder folder_;
  std::unique_ptr<Tokenizer> tokenizer_;
  TrainingData data_;
  Validation validation_;
  Model model_;
  std::shared_ptr<DataParallel> parallel_;
  Optimizer optimizer_;
  GradientAccumulator accumulator_;
  OutlierDetector outliers_;
  OutlierDetector spikes_;
  CheckpointWriter checkpoints_;
  TrainState state_;
  const StopSignal* stop_ = nullptr;  // of run()
  int64_t num_answers_ = 0;           // of rank 0
  int64_t process_steps_ = 0;         // made by this process
  double process_seconds_ = 0.0;      // spent in them
  Stopwatch since_report_;
  std::vector<std::unique_ptr<TrainCallback>> callbacks_;
};

}  // namespace smoe
