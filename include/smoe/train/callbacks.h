// What training tells the outside: reports, and the interface of those who receive them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "smoe/model/model.h"
#include "smoe/routing/router_statistics.h"

namespace smoe {

// One value a budget; budgets that a step did not train have none.
using BudgetValues = std::vector<std::optional<double>>;

// A training step whose number is a multiple of log_every_steps, or the last one.
struct StepReport {
  int64_t step = 0;
  int64_t total_steps = 0;
  int64_t tokens = 0;            // target tokens so far, each sequence counted once
  int64_t processed_tokens = 0;  // tokens of all replicas so far
  std::vector<std::string> budgets;
  BudgetValues losses;         // nats a target token, of this step
  double weighted_loss = 0.0;  // what the optimizer sees, without the auxiliary losses
  double balance_loss = 0.0;   // raw
  double router_z_loss = 0.0;  // raw
  double learning_rate = 0.0;
  double gradient_norm = 0.0;           // before clipping
  bool skipped = false;                 // an outlier: no update was made
  double processed_tokens_per_s = 0.0;  // since the report before
  double unique_tokens_per_s = 0.0;
  double seconds = 0.0;             // of training, over all parts of the run
  double remaining_s = 0.0;         // estimate
  int64_t peak_memory_bytes = 0;    // of tensors on the GPU, or of the process (resident set) on the CPU
  std::vector<RouterPanel> panels;  // a budget; empty for models without segment routing
};

struct SourceValidation {
  std::string name;
  int64_t num_targets = 0;
  std::vector<double> losses;         // nats a token, a budget
  std::vector<double> bits_per_byte;  // a budget
};

struct ValidationReport {
  int64_t step = 0;
  int64_t tokens = 0;
  std::vector<std::string> budgets;
  std::vector<SourceValidation> sources;
  std::vector<double> nesting;      // between neighbouring budgets: [0] is budgets 0 and 1; may be empty
  std::vector<RouterPanel> panels;  // a budget; may be empty
  double seconds = 0.0;
  std::string own_failure;  // why this process could not run its rows; then the losses, of all, are NaN

  // Mean over sources and budgets.
  double mean_loss() const;
};

// A checkpoint that was written, or is being written while training goes on.
struct SaveReport {
  int64_t step = 0;
  bool asynchronous = false;
  double blocked_s = 0.0;  // that training stood still for it
};

// A return to an earlier checkpoint.
struct RollbackReport {
  int64_t failed_step = 0;    // whose update was not made
  int64_t to_step = 0;        // of the checkpoint; training goes on with the step after it
  int64_t from_position = 0;  // sequences [from_position, to_position) of the global order are left out
  int64_t to_position = 0;
  std::string reason;
};

class TrainCallback {
 public:
  virtual ~TrainCallback() = default;
  virtual void on_step(const StepReport& /*report*/) {}
  virtual void on_validation(const ValidationReport& /*report*/) {}
  // Named results of the evaluation hook.
  virtual void on_evaluation(int64_t /*step*/, const std::map<std::string, double>& /*results*/) {}
  virtual void on_save(const SaveReport& /*report*/) {}
  // What was reported of steps after `to_step` is void.
  virtual void on_rollback(const RollbackReport& /*report*/) {}
};

// Called at the steps of the config's `evaluation` with the model as it is; returns results for the metrics,
// named TASK/METRIC/BUDGET. This is how a tool plugs benchmark evaluation into training.
using EvaluationHook = std::function<std::map<std::string, double>(const Model& model, int64_t step)>;

}  // namespace smoe
