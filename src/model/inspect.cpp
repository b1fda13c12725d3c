#include "smoe/model/inspect.h"

#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/core/json.h"
#include "smoe/core/progress.h"
#include "smoe/core/table.h"
#include "smoe/model/checkpoint_reader.h"
#include "smoe/model/parameter_counts.h"
#include "smoe/model/weight_files.h"
#include "smoe/routing/segment_map.h"

namespace smoe {
namespace {

using nlohmann::json;

int64_t read_token(const json& value, int64_t vocab_size, const std::filesystem::path& path, size_t row,
                   size_t position) {
  SMOE_CHECK(DataError, value.is_number_integer() && value >= 0 && value < vocab_size,
             "{}: row {}, position {}: {} is not a token id; allowed are whole numbers from 0 to {}",
             path.string(), row, position, value.dump(), vocab_size - 1);
  return value.get<int64_t>();
}

// Index of the budget in the config; 0 for a dense model, which has none.
int64_t requested_budget(const ModelConfig& config, const std::string& budget) {
  if (config.architecture == Architecture::kDense) {
    SMOE_CHECK(ConfigError, budget.empty(),
               "a dense model has no budgets, but budget \"{}\" is asked for; leave it out", budget);
    return 0;
  }
  SMOE_CHECK(ConfigError, !budget.empty(), "a {} needs a budget: a name or a number of experts",
             enum_to_name(config.architecture));
  return find_budget(config.budgets, budget);
}

int64_t requested_segment_length(const ModelConfig& config, const std::optional<int64_t>& requested) {
  if (!requested) {
    return config.routing.segment_length;
  }
  SMOE_CHECK(ConfigError, config.architecture == Architecture::kSteppedMoe,
             "a segment length applies to a stepped_moe only; this model is {}",
             enum_to_name(config.architecture));
  SMOE_CHECK(ConfigError, *requested >= 1, "the segment length is {}; at least 1 is needed", *requested);
  return *requested;
}

std::string shape_text(const at::Tensor& tensor) {
  return fmt::format("{}", fmt::join(tensor.sizes(), " x "));
}

std::string tensor_table(const WeightFiles& file) {
  Table table({"tensor", "dtype", "shape"});
  for (const std::string& name : file.names()) {
    const at::Tensor tensor = file.tensor(name);
    table.add_row({name, at::toString(tensor.scalar_type()), shape_text(tensor)});
  }
  return table.to_terminal();
}

}  // namespace

at::Tensor read_token_rows(const std::filesystem::path& path, int64_t vocab_size) {
  const json rows = read_json_file(path);
  SMOE_CHECK(DataError, rows.is_array() && !rows.empty() && rows[0].is_array() && !rows[0].empty(),
             "{}: expected a JSON list of lists of token ids, for example [[1, 2, 3], [4, 5, 6]]",
             path.string());
  const size_t num_tokens = rows[0].size();
  at::Tensor tokens_BT = at::empty({std::ssize(rows), static_cast<int64_t>(num_tokens)}, at::kLong);
  int64_t* next = tokens_BT.mutable_data_ptr<int64_t>();
  for (size_t row = 0; row < rows.size(); ++row) {
    SMOE_CHECK(DataError, rows[row].is_array() && rows[row].size() == num_tokens,
               "{}: row {} is not a list of {} ids like row 0; all rows need the same length", path.string(),
               row, num_tokens);
    for (size_t position = 0; position < num_tokens; ++position) {
      *next++ = read_token(rows[row][position], vocab_size, path, row, position);
    }
  }
  return tokens_BT;
}

LogitsResult compute_logits(const Model& model, const LogitsRequest& request) {
  const at::NoGradGuard no_grad;
  const ModelConfig& config = model.config();
  const int64_t budget = requested_budget(config, request.budget);
  const int64_t segment_length = requested_segment_length(config, request.segment_length);
  const int64_t num_rows = request.tokens_BT.size(0);
  const int64_t num_tokens = request.tokens_BT.size(1);

  LogitsResult result;
  result.logits_BTV = at::empty({num_rows, num_tokens, config.vocab_size}, at::kFloat);
  std::vector<at::Tensor> routing;
  for (int64_t row = 0; row < num_rows; ++row) {
    ModelInput input;
    input.tokens_BT = request.tokens_BT.narrow(0, row, 1).to(model.device());
    input.segments = fixed_segments(1, num_tokens, segment_length, config.routing.selector_position);
    input.budget_of_row = {budget};
    const ModelOutput output = model.forward(input);
    at::Tensor logits_TV = result.logits_BTV[row];
    logits_TV.copy_(at::linear(output.hidden_BTD[0], model.output_weight()));
    if (output.plan) {
      routing.push_back(output.plan->mask_QLE.to(at::kCPU, at::kByte));
    }
  }
  if (!routing.empty()) {
    result.routing_QLE = at::cat(routing);
  }
  return result;
}

std::string describe_checkpoint(const std::filesystem::path& path) {
  const std::filesystem::path checkpoint = resolve_checkpoint(path);
  verify_checkpoint(checkpoint);
  const ModelConfig config = read_checkpoint_model_config(checkpoint);
  const WeightFiles weights(checkpoint);
  const ParameterCounts counts = count_parameters(config, /*sequence_length=*/1);

  std::string text = fmt::format("checkpoint    {}\n", checkpoint.string());
  if (const std::optional<int64_t> step = checkpoint_step(checkpoint)) {
    text += fmt::format("step          {}\n", *step);
  }
  text += fmt::format("config hash   {}\n", sha256_of_file(checkpoint / "config.yaml"));
  text += fmt::format("architecture  {}, {} parameters\n", enum_to_name(config.architecture),
                      format_count(static_cast<double>(counts.total)));
  for (const BudgetCounts& budget : counts.budgets) {
    text +=
        fmt::format("budget        {}: k = {}, {} active without embeddings\n", budget.name,
                    budget.experts_per_layer, format_count(static_cast<double>(budget.active_non_embedding)));
  }
  text += "checksums     all files match\n\n";
  return text + tensor_table(weights);
}

}  // namespace smoe
