#include "smoe/train/train_config.h"

#include <cmath>

namespace smoe {
namespace {

void check_budget_weights(const TrainConfig& config, ConfigProblems& problems) {
  const auto& weights = config.loss.budget_weights;
  const bool is_dense = config.model.architecture == Architecture::kDense;
  if (!weights) {
    const bool has_zero =
        !config.model.budgets.empty() && config.model.budgets.front().experts_per_layer == 0;
    if (!is_dense && has_zero && config.loss.budget_weight_power > 0.0) {
      problems.add_rule(
          "loss.budget_weight_power", "model.budgets.0.experts_per_layer",
          "a budget with 0 experts would get weight 0; set the power to 0, or give loss.budget_weights");
    }
    return;
  }
  if (is_dense) {
    problems.add_rule("loss.budget_weights", "model.architecture",
                      "a dense model has no budgets to weight; remove loss.budget_weights");
  } else if (weights->size() != config.model.budgets.size()) {
    problems.add_rule("loss.budget_weights", "model.budgets",
                      fmt::format("{} weights for {} budgets; give one weight a budget, or auto",
                                  weights->size(), config.model.budgets.size()));
  }
  for (const double weight : *weights) {
    if (!(weight > 0.0) || !std::isfinite(weight)) {
      problems.add_rule("loss.budget_weights",
                        fmt::format("found {}, every weight must be a finite number above 0", weight));
    }
  }
}

void check_schedule(const TrainConfig& config, ConfigProblems& problems) {
  const ScheduleConfig& schedule = config.schedule;
  if (schedule.warmup_steps > config.steps) {
    problems.add_rule("schedule.warmup_steps", "steps",
                      fmt::format("the warm-up of {} steps is longer than the run of {}; shorten it",
                                  schedule.warmup_steps, config.steps));
  } else if (schedule.kind == ScheduleKind::kWarmupStableDecay) {
    const double decay_steps = schedule.decay_fraction * static_cast<double>(config.steps);
    if (static_cast<double>(schedule.warmup_steps) + decay_steps > static_cast<double>(config.steps)) {
      problems.add_rule(
          "schedule.warmup_steps", "schedule.decay_fraction",
          fmt::format("warm-up ({} steps) and decay ({:.0f} steps) do not fit into {} steps; shorten one",
                      schedule.warmup_steps, decay_steps, config.steps));
    }
  }
}

void check_device(const TrainConfig& config, ConfigProblems& problems) {
  const std::string& device = config.device;
  const bool numbered = device.starts_with("cuda:") && device.size() > 5 &&
                        device.find_first_not_of("0123456789", 5) == std::string::npos;
  if (device != "cpu" && device != "cuda" && !numbered) {
    problems.add_rule("device", fmt::format("found `{}`; allowed are cpu, cuda and cuda:N", device));
  }
}

void check_dtype(const TrainConfig& config, ConfigProblems& problems) {
  if (config.dtype != TrainDtype::kBfloat16 || config.model.architecture == Architecture::kDense) return;
  const std::pair<const char*, int64_t> widths[] = {{"model.dim", config.model.dim},
                                                    {"model.expert_dim", config.model.expert_dim}};
  for (const auto& [key, width] : widths) {
    if (width % 8 == 0) continue;
    problems.add_rule(
        "dtype", key,
        fmt::format("{} is {}; the grouped matrix products of bf16 need a multiple of 8: round it to "
                    "{}, or set dtype to fp32",
                    key, width, (width + 7) / 8 * 8));
  }
}

void check_task(const TrainConfig& config, ConfigProblems& problems) {
  if (config.task != TrainTask::kSft) return;
  if (config.sft.chat_template.empty()) {
    problems.add_rule("sft.chat_template", "task",
                      "is empty; fine-tuning needs a chat template, for example "
                      "configs/chat_templates/chatml.yaml");
  }
  if (config.data.sequences != SequenceKind::kPacked) {
    problems.add_rule("data.sequences", "task",
                      "dialogues are packed and kept apart; set data.sequences to packed for task sft");
  }
}

}  // namespace

void validate(const TrainConfig& config, ConfigProblems& problems) {
  check_budget_weights(config, problems);
  check_schedule(config, problems);
  check_device(config, problems);
  check_dtype(config, problems);
  check_task(config, problems);
  if (config.run_folder.empty())
    problems.add_rule("run_folder", "is empty; give the folder that receives the run");
  if (config.data.tokenizer.empty())
    problems.add_rule("data.tokenizer", "is empty; give the tokenizer's file");
  if (config.data.train.empty()) problems.add_rule("data.train", "is empty; name at least one source");
  for (const auto* beta : {&config.optimizer.beta1, &config.optimizer.beta2}) {
    const char* key = beta == &config.optimizer.beta1 ? "optimizer.beta1" : "optimizer.beta2";
    if (*beta >= 1.0) problems.add_rule(key, "must be below 1: with 1 the moment never moves");
  }
}

}  // namespace smoe
