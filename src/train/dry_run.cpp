#include "smoe/train/dry_run.h"

#include <unistd.h>

#include <algorithm>

#include "smoe/core/error.h"
#include "smoe/core/progress.h"
#include "smoe/data/tokenizer.h"
#include "smoe/data/training_data.h"
#include "smoe/model/parameter_counts.h"
#include "smoe/model/parameter_report.h"
#include "smoe/train/budget_sampler.h"
#include "smoe/train/gradient_accumulator.h"
#include "smoe/train/initialize_from.h"
#include "smoe/train/run_data.h"
#include "smoe/train/validation.h"

namespace smoe {
namespace {

namespace fs = std::filesystem;

// The nearest folder above the run folder that exists must be writable.
void check_writable(const fs::path& run_folder) {
  fs::path folder = fs::absolute(run_folder);
  while (!fs::exists(folder)) folder = folder.parent_path();
  SMOE_CHECK(ConfigError, fs::is_directory(folder), "run_folder {}: {} is not a folder", run_folder.string(),
             folder.string());
  SMOE_CHECK(ConfigError, ::access(folder.c_str(), W_OK) == 0,
             "run_folder {}: no right to write in {}; choose another folder with --set run_folder=DIR",
             run_folder.string(), folder.string());
}

std::string describe_sizes(const TrainConfig& config) {
  const ParameterCounts counts = count_parameters(config.model, config.data.sequence_length);
  std::string text =
      fmt::format("parameters      {} in all\n", format_count(static_cast<double>(counts.total)));
  const std::vector<double> alpha = loss_weights(config);
  for (size_t i = 0; i < counts.budgets.size(); ++i) {
    const BudgetCounts& budget = counts.budgets[i];
    text +=
        fmt::format("  budget {:<8} k {:<4} active {} ({} without embeddings), loss weight {:.3f}\n",
                    budget.name, budget.experts_per_layer, format_count(static_cast<double>(budget.active)),
                    format_count(static_cast<double>(budget.active_non_embedding)), alpha[i]);
  }
  const double state_bytes = static_cast<double>(float32_training_bytes() * counts.total);
  const double logits_bytes =
      4.0 *
      static_cast<double>(
          std::min(config.loss.head_chunk_tokens, config.micro_batch_size * config.data.sequence_length)) *
      static_cast<double>(config.model.vocab_size);
  const double head_bytes = 4.0 * static_cast<double>(config.model.vocab_size * config.model.dim);
  text += fmt::format(
      "memory          {} for weights, gradients and two moments in float32, {} for one chunk of logits\n"
      "                and {} for the head's gradient; activations come on top and grow with "
      "micro_batch_size\n",
      format_bytes(state_bytes), format_bytes(logits_bytes), format_bytes(head_bytes));
  return text;
}

}  // namespace

std::string describe_run(const TrainConfig& config) {
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(config.data.tokenizer);
  const TrainingData data = open_training_data(config, *tokenizer);
  const Validation validation(config, *tokenizer);
  const Batch batch = data.rows(0, config.batch_size);
  check_writable(config.run_folder);
  if (!config.initialize_from.empty()) check_initial_checkpoint(config, *tokenizer);

  std::string text = describe_sizes(config);
  const std::vector<int64_t> tokens = data.source_tokens();
  const std::vector<int64_t> rows = data.rows_per_epoch();
  for (size_t i = 0; i < tokens.size(); ++i) {
    text += fmt::format("source          {}: {} tokens, {} sequences a pass, weight {}\n",
                        config.data.train[i].name, format_count(static_cast<double>(tokens[i])), rows[i],
                        config.data.train[i].weight);
  }
  const int64_t num_budgets = static_cast<int64_t>(budget_names(config.model).size());
  const BudgetSampler sampler(config.budget_sampling, num_budgets, static_cast<uint64_t>(config.seed));
  const int64_t step_tokens = config.batch_size * config.data.sequence_length;
  text += fmt::format(
      "step            {} tokens ({} targets in the first batch), {} replicas: {} tokens processed\n",
      step_tokens, batch.num_targets(), sampler.num_replicas(), step_tokens * sampler.num_replicas());
  text += fmt::format("run             {} steps, {} tokens, into {}\n", config.steps,
                      format_count(static_cast<double>(step_tokens * config.steps)), config.run_folder);
  return text;
}

}  // namespace smoe
