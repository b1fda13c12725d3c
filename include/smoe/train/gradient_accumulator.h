// Forward and backward over all sequences and replicas of one optimizer step.
//
// The loss of a step is one plain sum with one denominator, so that neither the micro-batch size nor the
// order of the replicas changes it:
//
//   loss = sum over replicas, tokens of  alpha_budget * (CE + z_loss_weight * logsumexp^2)
//          / (target tokens of the step's sequences * number of replicas)
//        + auxiliary losses of the routers
#pragma once

#include <ATen/ATen.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "smoe/data/batch.h"
#include "smoe/model/model.h"
#include "smoe/routing/router_statistics.h"
#include "smoe/train/budget_sampler.h"
#include "smoe/train/data_parallel.h"
#include "smoe/train/train_config.h"

namespace smoe {

class StopSignal;

// Names of the budgets in metrics: those of the config, or "dense" for a dense model.
std::vector<std::string> budget_names(const ModelConfig& config);

// alpha of each budget: `loss.budget_weights`, or by `loss.budget_weight_power`; 1 for a dense model.
std::vector<double> loss_weights(const TrainConfig& config);

// One empty RouterStatistics a budget; none for models without segment routing. (Copies of one would share
// tensors.)
std::vector<RouterStatistics> make_router_statistics(const ModelConfig& config);

// What a step needs to know about where it stands.
struct StepPosition {
  int64_t step = 1;      // number of this optimizer step, from 1
  int64_t position = 0;  // of its first sequence in the global order
  // Of this process's first sequence within the step. No result depends on how a step's sequences are split.
  int64_t first_row = 0;
  const StopSignal* stop = nullptr;  // its signals are shared with the other processes
};

struct StepLosses {
  double loss = 0.0;                       // the formula above, without the auxiliary losses
  double balance_loss = 0.0;               // raw (not times its weight), mean over replicas
  double router_z_loss = 0.0;              // raw
  std::vector<double> cross_entropy_sums;  // a budget, over its target tokens
  std::vector<int64_t> num_targets;        // a budget
  int64_t unique_targets = 0;              // target tokens of the step's sequences, once each
  int64_t processed_tokens = 0;            // tokens of all replicas
  at::Tensor load_LE;                      // int64, segments that selected each expert; stepped_moe only
  std::array<bool, 2> signals = {};        // SIGINT and SIGTERM have reached a process of the job
  // What was not finite in this process's own passes; empty: nothing. Then the loss, which is a sum over all,
  // is not finite either.
  std::string own_failure;
};

class GradientAccumulator {
 public:
  // Keeps references to both. Without `parallel` the process is on its own.
  GradientAccumulator(const Model& model, const TrainConfig& config,
                      std::shared_ptr<DataParallel> parallel = nullptr);

  // Adds the gradients of one step to the parameters. `batch` holds the sequences of this process; losses and
  // gradients are those of all. `panels`, if not null, receives the routing of every budget (one entry a
  // budget).
  StepLosses accumulate(const Batch& batch, const StepPosition& at, std::vector<RouterStatistics>* panels);

 private:
  // One forward of some rows at one replica.
  struct Pass {
    int64_t replica = 0;
    int64_t begin = 0;
    int64_t count = 0;
    int64_t first_segment = 0;  // number of its first segment within the replica
  };
  struct Totals;
  // What the processes tell each other before a step.
  struct Split {
    int64_t num_targets = 0;    // of all
    int64_t num_tokens = 0;     // of all, once each
    int64_t first_segment = 0;  // segments of the sequences before this process's
    int64_t most_passes = 0;    // of any process
  };

  std::vector<Pass> passes(const Batch& batch) const;
  Split agree_on_split(const Batch& batch, std::vector<Pass>& all_passes) const;
  void run_passes(const Batch& batch, const std::vector<Pass>& all_passes, const StepPosition& at,
                  int64_t most_passes, Totals& totals);
  void sum_over_processes(StepLosses& losses, std::vector<RouterStatistics>* panels) const;
  bool needs_global_loads(const Batch& batch) const;
  std::vector<int64_t> budgets_of(const Pass& pass, const StepPosition& at) const;
  SelectionControls controls_of(const Pass& pass, const StepPosition& at) const;
  ModelInput input_of(const Batch& batch, const Pass& pass, const StepPosition& at) const;
  at::Tensor token_weights(const Batch& rows, const std::vector<int64_t>& budgets, double denominator) const;
  void count_expert_loads(const Batch& batch, const std::vector<Pass>& all_passes, const StepPosition& at,
                          Totals& totals) const;
  at::Tensor auxiliary_loss(const ModelOutput& output, const Pass& pass, const SelectionControls& controls,
                            Totals& totals) const;
  void run_pass(const Batch& batch, const Pass& pass, const StepPosition& at, Totals& totals);
  void try_to(const std::function<void()>& work, Totals& totals) const;
  void make_up_for_failure(Totals& totals) const;
  void read_losses(const Batch& batch, const std::vector<Pass>& all_passes, const Totals& totals,
                   StepLosses& losses) const;
  void add_to_panels(const RoutingPlan& plan, const ModelInput& input,
                     std::vector<RouterStatistics>& panels) const;

  const Model& model_;
  const TrainConfig& config_;
  std::shared_ptr<DataParallel> parallel_;
  std::vector<double> weights_;
  BudgetSampler sampler_;
};

}  // namespace smoe
