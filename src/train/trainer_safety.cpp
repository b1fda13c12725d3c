// What the trainer does about losses and gradients that are not finite, and about losses that jump.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "smoe/core/log.h"
#include "smoe/model/checkpoint_reader.h"
#include "smoe/train/trainer.h"

namespace smoe {
namespace {

// Told apart from other numeric errors, because the config answers them apart.
class LossSpike : public NumericError {
 public:
  using NumericError::NumericError;
};

constexpr const char* kNoUpdate = "No update was made and nothing was saved.";

bool is_finite(const Model& model) {
  for (const NamedParameter& parameter : model.parameters()) {
    if (!at::isfinite(parameter.tensor.detach()).all().item<bool>()) return false;
  }
  return true;
}

}  // namespace

std::optional<Trainer::StepResult> Trainer::step_or_roll_back() {
  std::string reason;
  try {
    return step();
  } catch (const LossSpike& error) {
    if (config_.safety.on_loss_spike != SpikeAction::kRollback) throw;
    reason = error.what();
  } catch (const NumericError& error) {
    if (config_.safety.on_non_finite != NonFiniteAction::kRollback) throw;
    reason = error.what();
  }
  roll_back(reason);
  return std::nullopt;
}

StepLosses Trainer::accumulate_gradients(const Batch& batch, std::vector<RouterStatistics>* statistics) {
  const int64_t first_row = rank_range(config_.batch_size, all_->rank(), all_->world_size()).begin;
  const StepPosition at{state_.step + 1, state_.position, first_row, stop_};
  try {
    return accumulator_.accumulate(batch, at, statistics);
  } catch (const NumericError& error) {
    // Of a process on its own: several fail together, below.
    throw NumericError(fmt::format("step {}: {}\n{}", at.step, error.what(),
                                   describe_failure(first_non_finite_tensor(), kNoUpdate)));
  }
}

// Which processes of a job brought in what is not finite, which the sums over all no longer tell.
std::string Trainer::describe_origin(const std::string& own_failure) const {
  if (!parallel_->is_distributed()) return {};
  constexpr size_t kMostNamed = 4;
  const std::vector<std::string> of_all =
      all_->all_gather_strings(own_failure, "origin of what is not finite");
  std::vector<std::string> origins;
  for (size_t rank = 0; rank < of_all.size(); ++rank) {
    if (!of_all[rank].empty()) origins.push_back(fmt::format("rank {}: {}", rank, of_all[rank]));
  }
  if (origins.empty()) return "It began on no single rank: the sum over all overflowed.\n";
  const size_t num_origins = origins.size();
  origins.resize(std::min(num_origins, kMostNamed));
  return fmt::format("It began on {} of {} processes: {}{}.\n", num_origins, of_all.size(),
                     fmt::join(origins, "; "), num_origins > kMostNamed ? "; and others" : "");
}

// Losses and norm are sums over all processes, so all arrive at the failure together; but the gradient at
// fault may be in the share of one alone.
void Trainer::check_finite(const StepLosses& losses, double gradient_norm) {
  const double total = losses.loss + losses.balance_loss + losses.router_z_loss;
  if (std::isfinite(total) && std::isfinite(gradient_norm)) return;
  std::string own = losses.own_failure;
  if (own.empty() && !parallel_->own_gradients_are_finite()) own = "gradients of its own passes";
  const std::string origin = describe_origin(own);
  const std::vector<std::string> tensors =
      all_->all_gather_strings(first_non_finite_tensor(), "tensor that is not finite");
  const auto culprit =
      std::find_if(tensors.begin(), tensors.end(), [](const std::string& tensor) { return !tensor.empty(); });
  throw NumericError(
      fmt::format("step {}: loss {}, auxiliary losses {} and {}, gradient norm {}: not finite.\n{}{}",
                  state_.step + 1, losses.loss, losses.balance_loss, losses.router_z_loss, gradient_norm,
                  origin, describe_failure(culprit == tensors.end() ? "" : *culprit, kNoUpdate)));
}

// The update before may have broken the model, which a validation notices ahead of the next step.
void Trainer::check_finite(const ValidationReport& report) {
  if (std::isfinite(report.mean_loss())) return;
  const std::string origin = parallel_->is_distributed()  ? describe_origin(report.own_failure)
                             : report.own_failure.empty() ? ""
                                                          : report.own_failure + "\n";
  throw NumericError(fmt::format("validation after step {}: mean loss {}: not finite.\n{}{}", state_.step,
                                 report.mean_loss(), origin,
                                 describe_failure(first_non_finite_tensor(), "Nothing was saved since.")));
}

bool Trainer::validate_or_roll_back() {
  try {
    validate_if_due();
    return true;
  } catch (const NumericError& error) {
    if (config_.safety.on_non_finite != NonFiniteAction::kRollback) throw;
    roll_back(error.what());
    return false;
  }
}

// Empty if there is none among the parameters and this process's share of the gradients.
std::string Trainer::first_non_finite_tensor() const {
  for (const NamedParameter& parameter : model_.parameters()) {
    if (!at::isfinite(parameter.tensor.detach()).all().item<bool>()) return "parameter " + parameter.name;
  }
  const std::string gradient = optimizer_.first_non_finite_gradient();
  return gradient.empty() ? "" : "gradient of " + gradient;
}

std::string Trainer::describe_failure(const std::string& tensor, const char* outcome) {
  checkpoints_.settle();  // one may just be getting complete
  const int64_t saved_step = checkpoints_.saved_step();
  const std::string last = saved_step > 0 ? fmt::format("The checkpoint of step {} is untouched.", saved_step)
                                          : "There is no checkpoint yet.";
  return fmt::format(
      "First tensor with NaN or infinity: {}. {} {} A lower optimizer.learning_rate, a longer "
      "schedule.warmup_steps or loss.z_loss_weight > 0 may help.",
      tensor.empty() ? "none among parameters and gradients (a sum overflowed)" : tensor, outcome, last);
}

// A step that is taken out by a rollback never enters the window: the window is restored with the rest.
void Trainer::check_spike(double loss) {
  if (config_.safety.on_loss_spike == SpikeAction::kNone) return;
  if (spikes_.is_loss_outlier(loss)) {
    throw LossSpike(
        fmt::format("step {}: the loss {:.4f} lies more than safety.spike_sigmas = {} standard deviations "
                    "above the mean of "
                    "the last {} steps. No update was made and nothing was saved.",
                    state_.step + 1, loss, config_.safety.spike_sigmas, spikes_.losses().size()));
  }
  spikes_.add(loss, loss);
}

// Damaged files are never passed over in silence, but weights that had lost their numbers before they were
// saved are no use to anybody.
TrainState Trainer::load_healthy_checkpoint(const std::string& reason) {
  std::vector<std::filesystem::path> checkpoints = list_checkpoints(folder_.checkpoints());
  for (; !checkpoints.empty(); checkpoints.pop_back()) {
    const std::filesystem::path& checkpoint = checkpoints.back();
    answer_of_main([&]() -> std::string {
      verify_checkpoint(checkpoint);
      return "undamaged";
    });
    TrainState state =
        load_checkpoint(checkpoint, config_, {data_.fingerprint(), tokenizer_->hash()}, model_, optimizer_);
    if (is_finite(model_)) return state;
    spdlog::warn("{}: holds weights that are not finite, so the run is not rolled back to it",
                 checkpoint.string());
  }
  throw NumericError(
      fmt::format("{}\nThe run cannot be rolled back: {} holds no usable checkpoint yet. A "
                  "smaller checkpoint.every_steps saves the first one sooner.",
                  reason, folder_.checkpoints().string()));
}

void Trainer::roll_back(const std::string& reason) {
  checkpoints_.wait();
  std::vector<RollbackRecord> rollbacks = state_.rollbacks;
  SMOE_CHECK(NumericError, static_cast<int64_t>(rollbacks.size()) < config_.safety.max_rollbacks,
             "{}\nThe run has been rolled back {} times, as often as safety.max_rollbacks allows.", reason,
             rollbacks.size());
  const int64_t failed_step = state_.step + 1;
  // All data since the checkpoint is left out, the failed step's and safety.skip_steps more: what upset the
  // model may have come before the step that showed it.
  const int64_t to_position = state_.position + (1 + config_.safety.skip_steps) * config_.batch_size;
  const double seconds = state_.seconds;
  state_ = load_healthy_checkpoint(reason);
  rollbacks.push_back({failed_step, state_.step, state_.position, to_position});
  state_.rollbacks = std::move(rollbacks);
  state_.seconds = seconds;
  note_identity();
  const int64_t from_position = std::exchange(state_.position, to_position);
  outliers_.restore(state_.outlier_losses, state_.outlier_norms);
  spikes_.restore(state_.spike_losses, state_.spike_losses);
  all_->barrier("rollback");  // nobody reads a checkpoint any more that the main process sets aside
  checkpoints_.set_aside_from(state_.step + 1);
  since_report_ = {};
  spdlog::error("{}\nRolled back to step {}; the sequences {} to {} are left out (rollback {} of {} at most)",
                reason, state_.step, from_position, to_position - 1, state_.rollbacks.size(),
                config_.safety.max_rollbacks);
  const RollbackReport report{failed_step, state_.step, from_position, to_position, reason};
  for (const auto& callback : callbacks_) callback->on_rollback(report);
}

}  // namespace smoe
