#include "smoe/train/dry_run.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <system_error>

#include "run_estimates.h"
#include "smoe/core/available_cores.h"
#include "smoe/core/error.h"
#include "smoe/core/progress.h"
#include "smoe/data/tokenizer.h"
#include "smoe/data/training_data.h"
#include "smoe/distributed/launch.h"
#include "smoe/model/checkpoint_reader.h"
#include "smoe/model/device.h"
#include "smoe/model/parameter_counts.h"
#include "smoe/train/budget_sampler.h"
#include "smoe/train/checkpoint_writer.h"
#include "smoe/train/gradient_accumulator.h"
#include "smoe/train/initialize_from.h"
#include "smoe/train/join_job.h"
#include "smoe/train/metrics_log.h"
#include "smoe/train/optimizer_state_reader.h"
#include "smoe/train/precision.h"
#include "smoe/train/run_data.h"
#include "smoe/train/run_folder.h"

namespace smoe {
namespace {

namespace fs = std::filesystem;

// Where the weights would come from.
std::string check_start(const TrainConfig& config, const DryRunOptions& options, const Tokenizer& tokenizer,
                        const TrainingData& data, Model& model) {
  const fs::path folder = fs::path(config.run_folder) / "checkpoints";
  const bool resume = options.resume || !options.resume_from.empty();
  if (resume && (!options.resume_from.empty() || !list_checkpoints(folder).empty())) {
    const fs::path checkpoint = choose_checkpoint(folder, options.resume_from);
    const TrainState state = check_checkpoint(checkpoint, config, {data.fingerprint(), tokenizer.hash()});
    load_model_weights(checkpoint, model);
    OptimizerStateReader(checkpoint).check_fits(model.parameters());
    return fmt::format("start           from {} at step {}\n", checkpoint.string(), state.step);
  }
  if (config.initialize_from.empty()) return "start           from random weights\n";
  initialize_from_checkpoint(config, tokenizer, model);
  return fmt::format("start           from the weights of {}\n", config.initialize_from);
}

// Reads what the first validation reads.
void check_validation_data(const TrainConfig& config, const Tokenizer& tokenizer) {
  for (const SourceConfig& source : config.data.validation) {
    const std::unique_ptr<ValidationData> data = open_validation_data(config, source, tokenizer);
    const int64_t num_rows =
        config.validation_rows == 0 ? data->num_rows() : std::min(config.validation_rows, data->num_rows());
    int64_t num_targets = 0;
    for (int64_t begin = 0; begin < num_rows && num_targets == 0; begin += config.micro_batch_size)
      num_targets += data->rows(begin, std::min(config.micro_batch_size, num_rows - begin)).num_targets();
    SMOE_CHECK(DataError, num_targets > 0, "validation source {}: its first {} rows have no target token",
               source.name, num_rows);
  }
}

// The disk must hold what the keep rules leave, less what is there already.
std::string check_disk_space(const TrainConfig& config) {
  const fs::path folder = nearest_existing_folder(config.run_folder);
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  const int64_t existing =
      static_cast<int64_t>(list_checkpoints(fs::path(config.run_folder) / "checkpoints").size());
  const int64_t count = std::max<int64_t>(1, most_checkpoints(config) - existing);
  const double needed = static_cast<double>(checkpoint_bytes(config)) * static_cast<double>(count);
  SMOE_CHECK(ConfigError, error || static_cast<double>(space.available) >= needed,
             "run_folder {}: {} are free on its disk, and {} checkpoints of {} need {}. Free space, choose "
             "another folder with --set run_folder=DIR, or lower checkpoint.keep_last.",
             config.run_folder, format_bytes(static_cast<double>(space.available)), count,
             format_bytes(static_cast<double>(checkpoint_bytes(config))), format_bytes(needed));
  return fmt::format("disk            {} a checkpoint, {} for {} of them; {} are free in {}\n",
                     format_bytes(static_cast<double>(checkpoint_bytes(config))), format_bytes(needed), count,
                     error ? "unknown bytes" : format_bytes(static_cast<double>(space.available)),
                     folder.string());
}

// How a job of several processes cuts a step up.
std::string describe_job(const TrainConfig& config, const LaunchInfo& launch, at::Device device) {
  if (!launch.is_distributed()) return {};
  const int64_t most = most_rows(config, launch.world_size);
  const int64_t fewest = config.batch_size / launch.world_size;
  const int64_t rows = std::min(config.micro_batch_size, most);
  std::string text = fmt::format(
      "processes       {}, {} of them on this node; {} sequences of a step each, {} at a time; device {}, "
      "CPU threads each: {}\n",
      launch.world_size, launch.local_world_size,
      most == fewest ? std::to_string(most) : fmt::format("{} or {}", fewest, most), rows, device.str(),
      at::get_num_threads());
  if (most != fewest) {
    text += fmt::format(
        "note            batch_size {} is no multiple of {} processes: those with {} sequences wait for "
        "those with {}\n",
        config.batch_size, launch.world_size, fewest, most);
  }
  const int64_t threads = launch.local_world_size * at::get_num_threads();
  if (device.is_cpu() && threads > available_cores()) {
    text += fmt::format(
        "note            the {} processes of this node run {} threads on {} cores, so that the time below is "
        "too short; lower num_threads or start fewer\n",
        launch.local_world_size, threads, available_cores());
  }
  return text;
}

// The counts on paper and the tensors that a model makes must agree.
std::string describe_parameters(const TrainConfig& config, const Model& model) {
  const ParameterCounts counts = count_parameters(config.model, config.data.sequence_length);
  int64_t total = 0;
  for (const NamedParameter& parameter : model.parameters()) {
    if (parameter.kind != ParameterKind::kBuffer) total += parameter.tensor.numel();
  }
  SMOE_ASSERT(total == counts.total);
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
  return text;
}

std::string describe_data(const TrainConfig& config, const TrainingData& data) {
  std::string text;
  const std::vector<int64_t> tokens = data.source_tokens();
  const std::vector<int64_t> rows = data.rows_per_epoch();
  for (size_t i = 0; i < tokens.size(); ++i) {
    text += fmt::format("source          {}: {} tokens, {} sequences a pass, weight {}\n",
                        config.data.train[i].name, format_count(static_cast<double>(tokens[i])), rows[i],
                        config.data.train[i].weight);
  }
  const Batch first = data.rows(0, config.batch_size);
  const Batch last = data.rows((config.steps - 1) * config.batch_size, config.batch_size);
  for (const Batch* batch : {&first, &last}) {
    SMOE_CHECK(DataError, batch->num_targets() > 0,
               "the {} batch of {} sequences has no target token; see the sources under data.train",
               batch == &first ? "first" : "last", config.batch_size);
  }
  const int64_t num_budgets = static_cast<int64_t>(budget_names(config.model).size());
  const BudgetSampler sampler(config.budget_sampling, num_budgets, static_cast<uint64_t>(config.seed));
  const int64_t step_tokens = config.batch_size * config.data.sequence_length;
  text += fmt::format(
      "step            {} tokens ({} targets in the first batch), {} replicas: {} tokens processed\n",
      step_tokens, first.num_targets(), sampler.num_replicas(), step_tokens * sampler.num_replicas());
  text += fmt::format("run             {} steps, {} tokens, into {}\n", config.steps,
                      format_count(static_cast<double>(step_tokens * config.steps)), config.run_folder);
  return text;
}

}  // namespace

std::string describe_run(const TrainConfig& config, const DryRunOptions& options) {
  // What is quick to find out comes first.
  const LaunchInfo launch = read_launch_info();
  check_job(config, launch);
  const at::Device device = resolve_device(device_of_process(config.device, launch));
  set_num_threads(threads_of_process(config.num_threads, launch));
  check_run_folder(config.run_folder, options.resume || !options.resume_from.empty());
  check_metrics(fs::path(config.run_folder) / "metrics.jsonl");
  const std::string disk = check_disk_space(config);
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(config.data.tokenizer);
  const TrainingData data = open_training_data(config, *tokenizer);
  check_validation_data(config, *tokenizer);
  run_files(config, *tokenizer);
  Model model(config.model, at::Device(at::kMeta), scalar_type(config.dtype));
  const std::string start = check_start(config, options, *tokenizer, data, model);

  std::string text = describe_parameters(config, model) + describe_job(config, launch, device) +
                     describe_memory(config, launch.world_size);
  if (const std::string slow = why_slow(config.dtype, device); !slow.empty())
    text += fmt::format("note            {}\n", slow);
  text += describe_data(config, data) + start + disk;
  return text + describe_time(config, options.tokens_per_s, launch.world_size);
}

}  // namespace smoe
