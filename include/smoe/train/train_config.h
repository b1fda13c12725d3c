// Config of a training run: pre-training or supervised fine-tuning.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "smoe/core/config.h"
#include "smoe/data/data_config.h"
#include "smoe/data/sft_config.h"
#include "smoe/model/activation_checkpointing.h"
#include "smoe/distributed/distributed_config.h"
#include "smoe/model/model_config.h"
#include "smoe/train/evaluation_config.h"

namespace smoe {

enum class TrainTask {
  kPretrain,  // text: every token is a target
  kSft,       // dialogues: the answers are the targets
};
template <>
struct EnumNames<TrainTask> {
  static constexpr std::array values = {enum_name(TrainTask::kPretrain, "pretrain"),
                                        enum_name(TrainTask::kSft, "sft")};
};

// The type of weights and activations. Router logits, SoftTopK, softmax, losses, norms, gradients summed over
// micro-batches and the optimizer's tensors are float32 either way.
enum class TrainDtype {
  kFloat32,
  kBfloat16,  // the optimizer keeps float32 master weights, of which the model has rounded copies
};
template <>
struct EnumNames<TrainDtype> {
  static constexpr std::array values = {enum_name(TrainDtype::kFloat32, "fp32"),
                                        enum_name(TrainDtype::kBfloat16, "bf16")};
};

// Which budgets a step trains.
enum class BudgetSampling {
  kReplicate,  // every sequence at every budget (the paper's batch replication)
  kCyclic,     // sequence i of the global order at budget i mod n
  kRandom,     // each sequence at one random budget
  kSandwich,   // every sequence at the smallest, the largest and one random budget in between
};
template <>
struct EnumNames<BudgetSampling> {
  static constexpr std::array values = {
      enum_name(BudgetSampling::kReplicate, "replicate"), enum_name(BudgetSampling::kCyclic, "cyclic"),
      enum_name(BudgetSampling::kRandom, "random"), enum_name(BudgetSampling::kSandwich, "sandwich")};
};

enum class ScheduleKind { kCosine, kWarmupStableDecay, kConstant, kInverseSqrt };
template <>
struct EnumNames<ScheduleKind> {
  static constexpr std::array values = {
      enum_name(ScheduleKind::kCosine, "cosine"), enum_name(ScheduleKind::kWarmupStableDecay, "wsd"),
      enum_name(ScheduleKind::kConstant, "constant"), enum_name(ScheduleKind::kInverseSqrt, "inverse_sqrt")};
};

struct ScheduleConfig {
  ScheduleKind kind = ScheduleKind::kCosine;
  int64_t warmup_steps = 100;
  double final_fraction = 0.1;
  double decay_fraction = 0.2;
};
template <class Visitor>
void visit_fields(Visitor& visitor, ScheduleConfig& config) {
  visitor.field("kind", config.kind, "shape after the linear warm-up");
  visitor.field("warmup_steps", config.warmup_steps, "optimizer steps of linear warm-up from 0", at_least(0));
  visitor.field("final_fraction", config.final_fraction,
                "cosine, wsd: learning rate at the end, as a share of the peak", between(0.0, 1.0));
  visitor.field("decay_fraction", config.decay_fraction, "wsd: share of the steps in the final linear decay",
                between(0.0, 1.0));
}

struct OptimizerConfig {
  double learning_rate = 4e-3;
  double weight_decay = 3.16e-4;
  bool decay_embeddings_and_norms = true;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double clip_norm = 1.0;
  int64_t mup_base_dim = 768;
  double router_learning_rate_scale = 1.0;
  bool skip_outlier_steps = false;
  double outlier_sigmas = 6.0;
  int64_t outlier_window = 128;
};
template <class Visitor>
void visit_fields(Visitor& visitor, OptimizerConfig& config) {
  visitor.field("learning_rate", config.learning_rate, "peak learning rate of AdamW", positive());
  visitor.field("weight_decay", config.weight_decay,
                "decoupled: multiplied by the schedule (0..1) only, not by the learning rate", at_least(0.0));
  visitor.field("decay_embeddings_and_norms", config.decay_embeddings_and_norms,
                "false: weight decay on matrices and routers only");
  visitor.field("beta1", config.beta1, "decay of the first moment", between(0.0, 1.0));
  visitor.field("beta2", config.beta2, "decay of the second moment", between(0.0, 1.0));
  visitor.field("epsilon", config.epsilon, "added to the root of the second moment", positive());
  visitor.field("clip_norm", config.clip_norm, "global gradient norm is scaled down to this; 0 disables",
                at_least(0.0));
  visitor.field("mup_base_dim", config.mup_base_dim,
                "mup-simple: updates of matrices are scaled by min(mup_base_dim / D, 1); 0 disables",
                at_least(0));
  visitor.field("router_learning_rate_scale", config.router_learning_rate_scale,
                "factor on the learning rate of routers and mask generator", at_least(0.0));
  visitor.field("skip_outlier_steps", config.skip_outlier_steps,
                "skip an update whose loss or gradient norm is an outlier of the last outlier_window steps");
  visitor.field("outlier_sigmas", config.outlier_sigmas,
                "standard deviations above the mean that make an outlier", positive());
  visitor.field("outlier_window", config.outlier_window, "steps that an outlier is judged against",
                at_least(8));
}

struct LossConfig {
  double budget_weight_power = 1.0;
  std::optional<std::vector<double>> budget_weights;
  double z_loss_weight = 0.0;
  int64_t head_chunk_tokens = 1024;
};
template <class Visitor>
void visit_fields(Visitor& visitor, LossConfig& config) {
  visitor.field("budget_weight_power", config.budget_weight_power,
                "p: loss weight of a budget is k^p / mean k^p; 0 weights all alike", at_least(0.0));
  visitor.field("budget_weights", config.budget_weights,
                "explicit loss weights, one a budget; auto: by power");
  visitor.field("z_loss_weight", config.z_loss_weight, "weight of logsumexp(logits)^2 of the output head",
                at_least(0.0));
  visitor.field("head_chunk_tokens", config.head_chunk_tokens,
                "tokens whose logits exist at one time in head and cross-entropy", at_least(1));
}

// What a checkpoint that cannot be written does to the run.
enum class SaveFailure {
  kWarn,  // the run goes on, and the next save tries again; it ends with an error if its last step is lost
  kStop,  // the run ends
};
template <>
struct EnumNames<SaveFailure> {
  static constexpr std::array values = {enum_name(SaveFailure::kWarn, "warn"),
                                        enum_name(SaveFailure::kStop, "stop")};
};

struct CheckpointConfig {
  int64_t every_steps = 500;
  int64_t keep_last = 2;
  int64_t keep_every_steps = 0;
  bool asynchronous = true;
  SaveFailure on_failure = SaveFailure::kWarn;
  double stop_deadline_seconds = 0.0;
};
template <class Visitor>
void visit_fields(Visitor& visitor, CheckpointConfig& config) {
  visitor.field("every_steps", config.every_steps,
                "steps between checkpoints; one is always written at the end", at_least(1));
  visitor.field("keep_last", config.keep_last, "newest checkpoints kept; 0 keeps all", at_least(0));
  visitor.field("keep_every_steps", config.keep_every_steps,
                "checkpoints at multiples of this are never removed; 0 none", at_least(0));
  visitor.field("asynchronous", config.asynchronous,
                "copy weights and moments in memory and write them while training goes on");
  visitor.field("on_failure", config.on_failure,
                "a checkpoint that cannot be written: warn, go on and try again at the next, or stop");
  visitor.field("stop_deadline_seconds", config.stop_deadline_seconds,
                "time from SIGTERM to the end of its save; a later end is reported; 0: none", at_least(0.0));
}

// What a loss or gradient that is not finite does to the run.
enum class NonFiniteAction { kStop, kRollback };
template <>
struct EnumNames<NonFiniteAction> {
  static constexpr std::array values = {enum_name(NonFiniteAction::kStop, "stop"),
                                        enum_name(NonFiniteAction::kRollback, "rollback")};
};

// What a loss far above those before it does to the run.
enum class SpikeAction { kNone, kStop, kRollback };
template <>
struct EnumNames<SpikeAction> {
  static constexpr std::array values = {enum_name(SpikeAction::kNone, "none"),
                                        enum_name(SpikeAction::kStop, "stop"),
                                        enum_name(SpikeAction::kRollback, "rollback")};
};

struct SafetyConfig {
  NonFiniteAction on_non_finite = NonFiniteAction::kStop;
  SpikeAction on_loss_spike = SpikeAction::kNone;
  double spike_sigmas = 6.0;
  int64_t spike_window = 128;
  int64_t skip_steps = 0;
  int64_t max_rollbacks = 3;
};
template <class Visitor>
void visit_fields(Visitor& visitor, SafetyConfig& config) {
  visitor.field("on_non_finite", config.on_non_finite,
                "a loss or gradient with NaN or infinity: stop, or rollback to the newest checkpoint");
  visitor.field("on_loss_spike", config.on_loss_spike,
                "a loss far above those before it: none, stop, or rollback to the newest checkpoint");
  visitor.field("spike_sigmas", config.spike_sigmas,
                "standard deviations above the mean of the last spike_window losses that make a spike",
                positive());
  visitor.field("spike_window", config.spike_window, "steps that a loss is judged against", at_least(8));
  visitor.field("skip_steps", config.skip_steps,
                "rollback: steps of data left out after the failed one, besides those since the checkpoint",
                at_least(0));
  visitor.field("max_rollbacks", config.max_rollbacks, "rollbacks of a run; one more stops it", at_least(1));
}

struct TrainConfig {
  TrainTask task = TrainTask::kPretrain;
  ModelConfig model;
  DataConfig data;
  SftConfig sft;
  std::string initialize_from;
  std::string run_folder;
  std::string device = "cpu";
  int64_t num_threads = 0;
  TrainDtype dtype = TrainDtype::kFloat32;
  ActivationCheckpointing activation_checkpointing;
  int64_t seed = 1;
  int64_t steps = 1000;
  int64_t batch_size = 16;
  int64_t micro_batch_size = 8;
  BudgetSampling budget_sampling = BudgetSampling::kReplicate;
  LossConfig loss;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  CheckpointConfig checkpoint;
  SafetyConfig safety;
  DistributedConfig distributed;
  bool deterministic = false;
  int64_t log_every_steps = 10;
  int64_t validate_every_steps = 200;
  int64_t validation_rows = 64;
  EvaluationConfig evaluation;
};
template <class Visitor>
void visit_fields(Visitor& visitor, TrainConfig& config) {
  visitor.field("task", config.task, "what is trained: text, or the answers in dialogues");
  visitor.field("model", config.model, "architecture and sizes");
  visitor.field("data", config.data, "tokenizer and sources");
  visitor.field("sft", config.sft, "dialogues; task sft only");
  visitor.field("initialize_from", config.initialize_from,
                "checkpoint or run folder that gives the initial weights; empty: random weights");
  visitor.field("run_folder", config.run_folder, "receives config, metrics, log and checkpoints");
  visitor.field("device", config.device, "cpu, cuda or cuda:N");
  visitor.field("num_threads", config.num_threads, "CPU threads; 0: all cores of this process", at_least(0));
  visitor.field("dtype", config.dtype,
                "of weights and activations: fp32, or bf16 with fp32 masters, gradients, moments and losses");
  visitor.field("activation_checkpointing", config.activation_checkpointing,
                "recomputes activations instead of keeping them; changes memory and speed, not the result");
  visitor.field("seed", config.seed, "of the initial weights, budget sampling and selection noise");
  visitor.field("steps", config.steps, "optimizer steps", at_least(1));
  visitor.field("batch_size", config.batch_size, "unique sequences an optimizer step (before replication)",
                at_least(1));
  visitor.field(
      "micro_batch_size", config.micro_batch_size,
      "sequences a forward and backward, at most batch_size; changes memory and speed, not the result",
      at_least(1));
  visitor.field("budget_sampling", config.budget_sampling, "which budgets each sequence trains");
  visitor.field("loss", config.loss, "weights and memory of the loss");
  visitor.field("optimizer", config.optimizer, "AdamW");
  visitor.field("schedule", config.schedule, "learning-rate schedule");
  visitor.field("checkpoint", config.checkpoint, "when checkpoints are written and removed");
  visitor.field("safety", config.safety, "what is done about losses that are not finite or jump");
  visitor.field("deterministic", config.deterministic,
                "GPU: only kernels that give the same bits on every run, at a cost in speed");
  visitor.field("distributed", config.distributed, "training with several processes");
  visitor.field("log_every_steps", config.log_every_steps, "steps between metric lines", at_least(1));
  visitor.field("validate_every_steps", config.validate_every_steps,
                "steps between validations; 0: only at the end", at_least(0));
  visitor.field("validation_rows", config.validation_rows, "rows of each validation source; 0: all",
                at_least(0));
  visitor.field("evaluation", config.evaluation, "benchmarks during training");
}

// Cross-field rules of the whole run.
void validate(const TrainConfig& config, ConfigProblems& problems);

}  // namespace smoe
