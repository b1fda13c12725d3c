#include <set>

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

// Problems of one kind repeat for every layer; the first ones say enough.
constexpr size_t kMaxMisfits = 20;

void check_folder(const fs::path& folder) {
  SMOE_CHECK(CheckpointError, fs::is_directory(folder), "{}: no such folder", folder.string());
  SMOE_CHECK(CheckpointError, fs::is_regular_file(folder / "config.json"),
             "{}: no config.json, so this is not the folder of a Hugging Face model", folder.string());
  SMOE_CHECK(CheckpointError, has_weight_files(folder),
             "{}: neither {} nor {}. Weights in PyTorch's own format (pytorch_model.bin) are not read; load "
             "and save the model once with transformers, whose save_pretrained writes safetensors",
             folder.string(), kWeightsFile, kWeightsIndexFile);
}

// Of a tensor with the experts stacked, the shape of one of theirs.
std::vector<int64_t> sizes_of_theirs(const TensorNames& names) {
  return {names.sizes.begin() + (names.is_stacked ? 1 : 0), names.sizes.end()};
}

// The head of a tied model is sometimes stored as well; older files hold tables that are computed today.
bool is_redundant(const std::string& name, const ModelConfig& config, const WeightFiles& weights) {
  if (name.ends_with("rotary_emb.inv_freq")) return true;
  return name == "lm_head.weight" && config.tied_embeddings &&
         weights.contains("model.embed_tokens.weight") &&
         at::equal(weights.tensor(name), weights.tensor("model.embed_tokens.weight"));
}

void check_tensors(const std::vector<TensorNames>& list, const ModelConfig& config,
                   const WeightFiles& weights) {
  std::vector<std::string> misfits;
  std::set<std::string> expected;
  for (const TensorNames& names : list) {
    const std::vector<int64_t> sizes = sizes_of_theirs(names);
    for (const std::string& name : names.theirs) {
      expected.insert(name);
      if (!weights.contains(name)) {
        misfits.push_back(fmt::format("{}: missing", name));
      } else if (const at::Tensor stored = weights.tensor(name); stored.sizes() != at::IntArrayRef(sizes)) {
        misfits.push_back(fmt::format("{}: shape {} in the file, {} by config.json", name,
                                      fmt::join(stored.sizes(), " x "), fmt::join(sizes, " x ")));
      } else if (!at::isFloatingType(stored.scalar_type())) {
        misfits.push_back(fmt::format("{}: dtype {} is not a floating-point type", name,
                                      at::toString(stored.scalar_type())));
      }
    }
  }
  for (const std::string& name : weights.names()) {
    if (!expected.contains(name) && !is_redundant(name, config, weights)) {
      misfits.push_back(fmt::format("{}: has no place in the model that config.json describes", name));
    }
  }
  const size_t num_misfits = misfits.size();
  if (num_misfits > kMaxMisfits) {
    misfits.resize(kMaxMisfits);
    misfits.push_back(fmt::format("and {} more", num_misfits - kMaxMisfits));
  }
  SMOE_CHECK(CheckpointError, misfits.empty(), "{}: the weights do not fit config.json:\n  {}",
             weights.path().string(), fmt::join(misfits, "\n  "));
}

DeferredTensor imported_tensor(const TensorNames& names, const WeightFiles& weights,
                               std::optional<at::ScalarType> dtype) {
  std::vector<at::Tensor> parts;
  for (const std::string& name : names.theirs) parts.push_back(weights.tensor(name));
  const at::ScalarType type = dtype.value_or(parts.front().scalar_type());
  return converted_tensor(names.ours, names.sizes, type, [parts, is_stacked = names.is_stacked] {
    return is_stacked ? at::stack(parts) : parts.front();
  });
}

}  // namespace

InterchangeSummary import_huggingface(const fs::path& folder, const fs::path& out,
                                      const HuggingFaceImportOptions& options) {
  check_folder(folder);
  const fs::path config_path = folder / "config.json";
  const HuggingFaceModel model =
      from_huggingface_config(read_json_file(config_path), config_path.string(), options.ignored_keys);
  const std::vector<TensorNames> list = huggingface_names(model.config, model.family);
  const WeightFiles weights(folder);
  check_tensors(list, model.config, weights);

  std::vector<DeferredTensor> tensors;
  for (const TensorNames& names : list) tensors.push_back(imported_tensor(names, weights, options.dtype));
  AtomicFolder checkpoint(out);
  const fs::path& temporary = checkpoint.temporary_path();
  std::vector<std::string> notes;
  // Before the weights: it is quick, and fails more often.
  import_tokenizer(folder, temporary, options.tokenizer, options.chat_template, notes);
  write_weight_files(temporary, tensors, options.max_shard_bytes);
  write_file_atomically(temporary / "config.yaml", converted_config(model.config, model.max_positions));
  InterchangeSummary summary = summarize(temporary, tensors);
  summary.model_class = huggingface_class(model.family);
  summary.notes = std::move(notes);
  write_checksums(temporary);
  checkpoint.commit();
  return summary;
}

}  // namespace smoe
