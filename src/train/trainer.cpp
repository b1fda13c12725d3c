#include "smoe/train/trainer.h"

#include <chrono>
#include <csignal>

#include "determinism.h"
#include "smoe/core/files.h"
#include "smoe/core/log.h"
#include "smoe/core/progress.h"
#include "smoe/core/tool.h"
#include "smoe/model/checkpoint_reader.h"
#include "smoe/model/device.h"
#include "smoe/train/checkpoint_board.h"
#include "smoe/train/console_log.h"
#include "smoe/train/initialize_from.h"
#include "smoe/train/join_job.h"
#include "smoe/train/metrics_log.h"
#include "smoe/train/precision.h"
#include "smoe/train/run_data.h"
#include "smoe/train/schedule.h"
#include "smoe/train/stop_signal.h"
#include "smoe/train/tensorboard.h"

namespace smoe {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Model build_model(const TrainConfig& config, const LaunchInfo& launch) {
  set_num_threads(threads_of_process(config.num_threads, launch));
  if (config.deterministic) use_deterministic_kernels();
  const at::Device device = resolve_device(device_of_process(config.device, launch));
  if (const std::string reason = why_slow(config.dtype, device); !reason.empty()) spdlog::warn("{}", reason);
  Model model(config.model, device, scalar_type(config.dtype));
  model.set_activation_checkpointing(config.activation_checkpointing);
  return model;
}

}  // namespace

Trainer::Trainer(TrainConfig config, TrainerOptions options)
    : config_(std::move(config)),
      options_(std::move(options)),
      all_(options_.communicator ? options_.communicator : Communicator::single()),
      folder_(config_.run_folder, options_.resume || !options_.resume_from.empty(), *all_),
      tokenizer_(load_tokenizer(config_.data.tokenizer)),
      data_(open_training_data(config_, *tokenizer_)),
      validation_(config_, *tokenizer_),
      model_(build_model(config_, all_->launch())),
      parallel_(std::make_shared<DataParallel>(model_.parameters(), all_, config_.distributed)),
      optimizer_(config_.optimizer, parallel_, config_.model.dim),
      accumulator_(model_, config_, parallel_),
      outliers_(config_.optimizer.outlier_window, config_.optimizer.outlier_sigmas),
      spikes_(config_.safety.spike_window, config_.safety.spike_sigmas),
      checkpoints_(
          folder_.checkpoints(), config_, tokenizer_->path(),
          {run_files(config_, *tokenizer_), make_checkpoint_group(*all_), options_.before_checkpoint_file}) {
  if (options_.log_to_folder) open_log();
  check_agreement();
  start_or_resume();
  if (!all_->is_main()) return;
  write_file_atomically(folder_.path() / "config.yaml", dump_config(config_));
  add_default_callbacks();
}

void Trainer::open_log() {
  log_to_file(folder_.path() /
              (all_->is_main() ? std::string("log.txt") : fmt::format("log-rank-{}.txt", all_->rank())));
  if (!parallel_->is_distributed()) return;
  spdlog::info("rank {} of {} (number {} of {} on its node), device {}, zero_stage {}, shard_group_size {}",
               all_->rank(), all_->world_size(), all_->launch().local_rank, all_->launch().local_world_size,
               model_.device().str(), config_.distributed.zero_stage, config_.distributed.shard_group_size);
}

void Trainer::check_agreement() {
  check_same_everywhere(
      *all_,
      {{"the training data", data_.fingerprint(),
        "Every process must read the same files, best from one shared folder, named under data.train."},
       {"the tokenizer (data.tokenizer)", tokenizer_->hash(), "Every process must read the same file."}});
}

// Rank 0 works, however long it takes; the others wait for its answer without an operation that could time
// out. If it throws, it takes the job down (join_job.h), which ends their wait.
std::string Trainer::answer_of_main(const std::function<std::string()>& work) {
  if (!parallel_->is_distributed()) return work();
  const std::shared_ptr<MessageBoard> board = all_->message_board("answers of rank 0");
  const std::string key = std::to_string(num_answers_++);
  if (!all_->is_main()) return board->await(key, /*from=*/0);
  const std::string answer = work();
  board->publish(key, answer);
  return answer;
}

// Rank 0 chooses and verifies the checkpoint, and the others take its word; empty: there is none to go on
// from.
std::filesystem::path Trainer::agreed_checkpoint(bool resume) {
  return answer_of_main([&]() -> std::string {
    if (!resume || (list_checkpoints(folder_.checkpoints()).empty() && options_.resume_from.empty()))
      return {};
    return choose_checkpoint(folder_.checkpoints(), options_.resume_from).string();
  });
}

Trainer::~Trainer() = default;

void Trainer::add_callback(std::unique_ptr<TrainCallback> callback) {
  callbacks_.push_back(std::move(callback));
}

void Trainer::start_or_resume() {
  const bool resume = options_.resume || !options_.resume_from.empty();
  const std::filesystem::path checkpoint = agreed_checkpoint(resume);
  if (!checkpoint.empty()) {
    state_ =
        load_checkpoint(checkpoint, config_, {data_.fingerprint(), tokenizer_->hash()}, model_, optimizer_);
    outliers_.restore(state_.outlier_losses, state_.outlier_norms);
    spikes_.restore(state_.spike_losses, state_.spike_losses);
    checkpoints_.set_aside_from(state_.step + 1);
    spdlog::info("resumed from {} at step {}", checkpoint.string(), state_.step);
  } else {
    if (resume)
      spdlog::warn("{}: no checkpoint yet, training starts at step 0", folder_.checkpoints().string());
    initialize_weights();
    parallel_->broadcast_parameters();
    optimizer_.take_weights();
  }
  note_identity();
}

void Trainer::note_identity() {
  state_.seed = config_.seed;
  state_.data_fingerprint = data_.fingerprint();
  state_.tokenizer_hash = tokenizer_->hash();
  state_.config_hash = config_hash(config_);
  state_.code_version = version();
}

void Trainer::initialize_weights() {
  if (!config_.initialize_from.empty()) {
    initialize_from_checkpoint(config_, *tokenizer_, model_);
    return;
  }
  if (config_.task == TrainTask::kSft) {
    spdlog::warn("initialize_from is empty: fine-tuning starts from random weights");
  }
  model_.initialize(static_cast<uint64_t>(config_.seed));
}

void Trainer::add_default_callbacks() {
  add_callback(std::make_unique<MetricsLog>(folder_.metrics(), state_.step));
  add_callback(std::make_unique<TensorBoardLog>(folder_.path(), state_.step));
  if (options_.console) add_callback(std::make_unique<ConsoleLog>(budget_names(config_.model)));
}

TrainOutcome Trainer::run() {
  const StopSignal stop;
  stop_ = &stop;
  spdlog::info("training from step {} to {} in {}", state_.step, config_.steps, folder_.path().string());
  if (validate_or_roll_back()) evaluate_if_due();  // a signal may have come between a step and these
  while (state_.step < config_.steps) {
    const auto start = std::chrono::steady_clock::now();
    const std::optional<StepResult> made = step_or_roll_back();
    if (!made) continue;
    const StepResult& result = *made;
    const double seconds = seconds_since(start);
    state_.seconds += seconds;
    process_seconds_ += seconds;
    ++process_steps_;
    since_report_.seconds += seconds;
    since_report_.unique_tokens += result.losses.unique_targets;
    since_report_.processed_tokens += result.losses.processed_tokens;
    if (is_report_step(state_.step)) report_step(result);
    checkpoints_.poll();
    if (const int signal = agreed_signal(result.losses); signal != 0) return stop_early(signal);
    if (!validate_or_roll_back()) continue;
    evaluate_if_due();
    if (state_.step % config_.checkpoint.every_steps == 0 && state_.step < config_.steps) save();
  }
  note_outliers();
  checkpoints_.save_last(model_, optimizer_, state_);
  return {};
}

// Processes stop together, after the step in which all have learnt of the signal.
int Trainer::agreed_signal(const StepLosses& losses) const {
  if (!parallel_->is_distributed()) return stop_->received();
  return losses.signals[1] ? SIGTERM : losses.signals[0] ? SIGINT : 0;
}

TrainOutcome Trainer::stop_early(int signal) {
  const double deadline_s = config_.checkpoint.stop_deadline_seconds;
  std::optional<double> limit_s;
  if (deadline_s > 0.0) limit_s = deadline_s - stop_->seconds_since();
  note_outliers();
  checkpoints_.save_last(model_, optimizer_, state_, limit_s);
  spdlog::warn("signal {}: step {} is finished and saved; go on with --resume", signal, state_.step);
  return {signal};
}

Trainer::StepResult Trainer::step() {
  const int64_t number = state_.step + 1;
  all_->set_step(number);
  const RankRange rows = rank_range(config_.batch_size, all_->rank(), all_->world_size());
  const Batch batch = data_.rows(state_.position + rows.begin, rows.size());
  StepResult result;
  if (is_report_step(number)) result.statistics = make_router_statistics(config_.model);
  optimizer_.zero_gradients();
  result.losses = accumulate_gradients(batch, result.statistics.empty() ? nullptr : &result.statistics);
  result.gradient_norm = optimizer_.gradient_norm();
  check_finite(result.losses, result.gradient_norm);
  check_spike(result.losses.loss);

  if (config_.optimizer.skip_outlier_steps) {
    result.skipped = outliers_.is_outlier(result.losses.loss, result.gradient_norm);
    outliers_.add(result.losses.loss, result.gradient_norm);
  }
  const double multiplier = schedule_multiplier(config_.schedule, number, config_.steps);
  result.learning_rate = multiplier * config_.optimizer.learning_rate;
  if (!result.skipped) {
    optimizer_.clip_gradients(result.gradient_norm);
    optimizer_.step(multiplier);
    update_selection_bias(result.losses);
  } else {
    ++state_.skipped_steps;
    spdlog::warn("step {}: loss {:.4f} or gradient norm {:.3f} is an outlier; the update is skipped", number,
                 result.losses.loss, result.gradient_norm);
  }
  state_.step = number;
  state_.position += config_.batch_size;
  state_.tokens += result.losses.unique_targets;
  state_.processed_tokens += result.losses.processed_tokens;
  return result;
}

void Trainer::update_selection_bias(const StepLosses& losses) {
  const BalanceConfig& balance = config_.model.routing.balance;
  if (balance.kind != BalanceKind::kBias || !losses.load_LE.defined()) return;
  at::Tensor& bias_LE = model_.selection_bias_LE();
  bias_LE.copy_(updated_selection_bias(bias_LE, losses.load_LE, balance.bias_rate));
}

bool Trainer::is_report_step(int64_t step) const {
  return step % config_.log_every_steps == 0 || step == config_.steps;
}

void Trainer::report_step(const StepResult& result) {
  StepReport report;
  report.step = state_.step;
  report.total_steps = config_.steps;
  report.tokens = state_.tokens;
  report.processed_tokens = state_.processed_tokens;
  report.budgets = budget_names(config_.model);
  for (size_t i = 0; i < report.budgets.size(); ++i) {
    const int64_t targets = result.losses.num_targets[i];
    report.losses.push_back(
        targets == 0 ? std::nullopt
                     : std::optional(result.losses.cross_entropy_sums[i] / static_cast<double>(targets)));
  }
  report.weighted_loss = result.losses.loss;
  report.balance_loss = result.losses.balance_loss;
  report.router_z_loss = result.losses.router_z_loss;
  report.learning_rate = result.learning_rate;
  report.gradient_norm = result.gradient_norm;
  report.skipped = result.skipped;
  report.unique_tokens_per_s = static_cast<double>(since_report_.unique_tokens) / since_report_.seconds;
  report.processed_tokens_per_s = static_cast<double>(since_report_.processed_tokens) / since_report_.seconds;
  report.seconds = state_.seconds;
  report.remaining_s = process_seconds_ / static_cast<double>(process_steps_) *
                       static_cast<double>(config_.steps - state_.step);
  report.peak_memory_bytes = peak_memory_bytes(model_.device());
  for (const RouterStatistics& statistics : result.statistics) report.panels.push_back(statistics.panel());
  for (const auto& callback : callbacks_) callback->on_step(report);
  since_report_ = {};
}

void Trainer::validate_if_due() {
  const bool is_last = state_.step == config_.steps;
  const int64_t every = config_.validate_every_steps;
  const bool is_due = is_last || (every > 0 && state_.step % every == 0);
  if (!is_due || state_.last_validation_step == state_.step) return;
  state_.last_validation_step = state_.step;
  if (!validation_.empty()) {
    ValidationReport report = validation_.run(model_, *all_);
    report.step = state_.step;
    report.tokens = state_.tokens;
    check_finite(report);
    if (const double loss = report.mean_loss();
        !state_.best_validation_loss || loss < *state_.best_validation_loss) {
      state_.best_validation_loss = loss;
      state_.best_validation_step = state_.step;
    }
    for (const auto& callback : callbacks_) callback->on_validation(report);
  }
}

void Trainer::evaluate_if_due() {
  if (!options_.evaluation) return;
  const int64_t every = config_.evaluation.every_steps.value_or(config_.validate_every_steps);
  const bool is_due = state_.step == config_.steps || (every > 0 && state_.step % every == 0);
  if (!is_due || state_.last_evaluation_step == state_.step) return;
  state_.last_evaluation_step = state_.step;
  const std::map<std::string, double> results = evaluate();
  for (const auto& callback : callbacks_) callback->on_evaluation(state_.step, results);
}

// The results are rank 0's; the others get none.
std::map<std::string, double> Trainer::evaluate() {
  std::map<std::string, double> results;
  answer_of_main([&]() -> std::string {
    results = options_.evaluation(model_, state_.step);
    return "done";
  });
  return results;
}

void Trainer::note_outliers() {
  state_.outlier_losses = outliers_.losses();
  state_.outlier_norms = outliers_.gradient_norms();
  state_.spike_losses = spikes_.losses();
}

void Trainer::save() {
  note_outliers();
  SaveReport report{state_.step, config_.checkpoint.asynchronous, 0.0};
  report.blocked_s = checkpoints_.save(model_, optimizer_, state_);
  for (const auto& callback : callbacks_) callback->on_save(report);
}

}  // namespace smoe
