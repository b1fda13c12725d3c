#include "conversion.h"
#include "huggingface_names.h"
#include "huggingface_tokenizer.h"
#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/core/json.h"
#include "smoe/interchange/huggingface.h"
#include "smoe/interchange/huggingface_config.h"
#include "smoe/model/checkpoint_reader.h"
#include "smoe/model/weight_files.h"

namespace smoe {
namespace {

namespace fs = std::filesystem;

// One tensor of ours becomes one of theirs, or one an expert.
void add_tensors(const TensorNames& names, const WeightFiles& weights, std::optional<at::ScalarType> dtype,
                 std::vector<DeferredTensor>& tensors) {
  const at::Tensor stored = weights.tensor(names.ours);
  const at::ScalarType type = dtype.value_or(stored.scalar_type());
  if (!names.is_stacked) {
    tensors.push_back(converted_tensor(names.theirs.front(), names.sizes, type, [stored] { return stored; }));
    return;
  }
  const std::vector<int64_t> sizes(names.sizes.begin() + 1, names.sizes.end());
  for (size_t expert = 0; expert < names.theirs.size(); ++expert) {
    tensors.push_back(converted_tensor(names.theirs[expert], sizes, type, [stored, expert] {
      return stored.select(0, static_cast<int64_t>(expert));
    }));
  }
}

int64_t experts_per_token(const ModelConfig& config, const std::string& budget, const std::string& label) {
  if (config.architecture == Architecture::kDense) {
    SMOE_CHECK(ConfigError, budget.empty(),
               "{}: a dense model has no budgets, but budget \"{}\" is asked for", label, budget);
    return 0;
  }
  SMOE_CHECK(ConfigError, !budget.empty() || config.budgets.size() == 1,
             "{}: the model has {} budgets, and a Hugging Face model one number of experts a token; choose "
             "one with --budget",
             label, config.budgets.size());
  const int64_t index = budget.empty() ? 0 : find_budget(config.budgets, budget);
  return config.budgets[static_cast<size_t>(index)].experts_per_layer;
}

int64_t max_positions(const fs::path& checkpoint, const std::optional<int64_t>& given) {
  const std::optional<int64_t> trained = given ? given : checkpoint_sequence_length(checkpoint);
  SMOE_CHECK(CheckpointError, trained.has_value(),
             "{}: config.yaml has no data.sequence_length, which a Hugging Face config needs as "
             "max_position_embeddings; give it with --max-positions",
             checkpoint.string());
  return *trained;
}

std::string dtype_name(const std::vector<DeferredTensor>& tensors) {
  switch (tensors.front().dtype) {
    case at::kBFloat16:
      return "bfloat16";
    case at::kHalf:
      return "float16";
    case at::kDouble:
      return "float64";
    default:
      return "float32";
  }
}

}  // namespace

InterchangeSummary export_huggingface(const fs::path& path, const fs::path& out,
                                      const HuggingFaceExportOptions& options) {
  const fs::path checkpoint = resolve_checkpoint(path);
  verify_checkpoint(checkpoint);
  const ModelConfig config = read_checkpoint_model_config(checkpoint);
  const HuggingFaceFamily family = matching_family(config, checkpoint.string());
  HuggingFaceDetails details;
  details.experts_per_token = experts_per_token(config, options.budget, checkpoint.string());
  details.max_positions = max_positions(checkpoint, options.max_positions);

  const WeightFiles weights(checkpoint);
  check_weights_fit(weights, Model(config, at::Device(at::kMeta)));
  std::vector<DeferredTensor> tensors;
  for (const TensorNames& names : huggingface_names(config, family)) {
    add_tensors(names, weights, options.dtype, tensors);
  }
  AtomicFolder folder(out);
  const fs::path& temporary = folder.temporary_path();
  // Readers of transformers look for the framework that has written the file.
  write_weight_files(temporary, tensors, options.max_shard_bytes, {{"format", "pt"}});
  InterchangeSummary summary = summarize(temporary, tensors);
  summary.model_class = huggingface_class(family);
  const SpecialTokenIds ids = export_tokenizer(checkpoint, temporary, details.max_positions, summary.notes);
  details.bos_token_id = ids.bos;
  details.eos_token_id = ids.eos;
  details.dtype = dtype_name(tensors);
  const nlohmann::ordered_json json = to_huggingface_config(config, family, details);
  write_file_atomically(temporary / "config.json", json.dump(2) + "\n");
  folder.commit();
  return summary;
}

}  // namespace smoe
