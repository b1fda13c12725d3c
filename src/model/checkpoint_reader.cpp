#include "smoe/model/checkpoint_reader.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/core/hashing_progress.h"
#include "smoe/core/json.h"
#include "smoe/model/weight_files.h"

namespace smoe {
namespace {

constexpr const char* kConfigFile = "config.yaml";
constexpr const char* kChecksumsFile = "checksums.json";
constexpr std::string_view kStepPrefix = "step-";

// Every file a checkpoint cannot do without, whatever its checksums list.
void check_has_file(const std::filesystem::path& checkpoint, const char* name) {
  SMOE_CHECK(
      CheckpointError, std::filesystem::is_regular_file(checkpoint / name),
      "{}: {} is missing, so this is not a complete checkpoint; use another checkpoint or restore the file",
      checkpoint.string(), name);
}

nlohmann::json read_checksums(const std::filesystem::path& checkpoint) {
  check_has_file(checkpoint, kChecksumsFile);
  const std::filesystem::path path = checkpoint / kChecksumsFile;
  nlohmann::json checksums = nlohmann::json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
  SMOE_CHECK(
      CheckpointError, checksums.is_object(),
      "{}: not a JSON object of file names and SHA-256 sums; the file is damaged, use another checkpoint",
      path.string());
  for (const auto& [name, sum] : checksums.items()) {
    SMOE_CHECK(CheckpointError, sum.is_string() && std::filesystem::path(name).filename() == name,
               "{}: the entry \"{}\" is not a file of this folder with its SHA-256; the file is damaged, use "
               "another "
               "checkpoint",
               path.string(), name);
  }
  return checksums;
}

void verify_file(const std::filesystem::path& checkpoint, const std::string& name,
                 const std::string& expected, HashingProgress& progress) {
  check_has_file(checkpoint, name.c_str());
  const std::filesystem::path path = checkpoint / name;
  const std::string found = progress.sha256_of_file(path);
  SMOE_CHECK(
      CheckpointError, found == expected,
      "{}: the file was altered or cut short: SHA-256 {} expected by {}, {} found over {} bytes. Restore the "
      "file from a copy or use another checkpoint",
      path.string(), expected, kChecksumsFile, found, std::filesystem::file_size(path));
}

// One line for every way in which the file does not fit the model; empty when it does.
std::string list_misfits(const WeightFiles& file, const std::vector<NamedParameter>& parameters) {
  std::string misfits;
  std::set<std::string> expected;
  for (const NamedParameter& parameter : parameters) {
    expected.insert(parameter.name);
    if (!file.contains(parameter.name)) {
      misfits += fmt::format("\n  {}: missing; the model expects {}", parameter.name,
                             fmt::join(parameter.tensor.sizes(), " x "));
      continue;
    }
    const at::Tensor stored = file.tensor(parameter.name);
    if (stored.sizes() != parameter.tensor.sizes()) {
      misfits += fmt::format("\n  {}: shape {} in the file, {} in the model", parameter.name,
                             fmt::join(stored.sizes(), " x "), fmt::join(parameter.tensor.sizes(), " x "));
    } else if (!at::isFloatingType(stored.scalar_type())) {
      misfits += fmt::format("\n  {}: dtype {} in the file is not a floating-point type", parameter.name,
                             at::toString(stored.scalar_type()));
    }
  }
  for (const std::string& name : file.names()) {
    if (!expected.contains(name)) {
      misfits += fmt::format("\n  {}: in the file, but not in the model", name);
    }
  }
  return misfits;
}

}  // namespace

std::optional<int64_t> checkpoint_step(const std::filesystem::path& checkpoint) {
  const std::string name = checkpoint.filename().string();
  if (!name.starts_with(kStepPrefix)) {
    return std::nullopt;
  }
  int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + kStepPrefix.size(), end, step);
  return error == std::errc() && rest == end && step >= 0 ? std::optional(step) : std::nullopt;
}

std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& folder) {
  std::vector<std::pair<int64_t, std::filesystem::path>> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::optional<int64_t> step = checkpoint_step(entry.path());
    if (step && entry.is_directory()) {
      found.emplace_back(*step, entry.path());
    }
  }
  std::sort(found.begin(), found.end());
  std::vector<std::filesystem::path> checkpoints;
  for (auto& [step, path] : found) {
    checkpoints.push_back(std::move(path));
  }
  return checkpoints;
}

std::filesystem::path resolve_checkpoint(const std::filesystem::path& path) {
  SMOE_CHECK(
      CheckpointError, std::filesystem::is_directory(path),
      "{}: no such folder; give a checkpoint folder (step-...), a run folder or its checkpoints folder",
      path.string());
  // `path / "."` style arguments have an empty last component.
  const std::filesystem::path folder = path.has_filename() ? path : path.parent_path();
  if (checkpoint_step(folder) || has_weight_files(folder)) {
    return folder;
  }
  // A checkpoint is complete as soon as its folder has its name, so the newest name decides; the file
  // `latest` serves readers that cannot list folders.
  for (const std::filesystem::path& parent : {folder / "checkpoints", folder}) {
    const std::vector<std::filesystem::path> checkpoints = list_checkpoints(parent);
    if (!checkpoints.empty()) {
      return checkpoints.back();
    }
  }
  throw CheckpointError(fmt::format(
      "{}: neither a checkpoint (it has no {}) nor a run with one: no folder step-<number> in it or in its "
      "checkpoints/",
      path.string(), kWeightsFile));
}

void verify_checkpoint(const std::filesystem::path& checkpoint) {
  SMOE_CHECK(CheckpointError, std::filesystem::is_directory(checkpoint), "{}: no such checkpoint folder",
             checkpoint.string());
  const nlohmann::json checksums = read_checksums(checkpoint);
  std::vector<std::string> needed = {kConfigFile};
  for (std::string& name : list_weight_files(checkpoint)) needed.push_back(std::move(name));
  for (const std::string& name : needed) {
    check_has_file(checkpoint, name.c_str());
    SMOE_CHECK(CheckpointError, checksums.contains(name),
               "{}: {} has no checksum in {}; the checkpoint is damaged, use another one",
               checkpoint.string(), name, kChecksumsFile);
  }
  HashingProgress progress(checkpoint, "verifying");
  for (const auto& [name, sum] : checksums.items()) {
    verify_file(checkpoint, name, sum.get<std::string>(), progress);
  }
}

void write_checksums(const std::filesystem::path& checkpoint) {
  nlohmann::json checksums = nlohmann::json::object();
  HashingProgress progress(checkpoint, "hashing");
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_regular_file() && name != kChecksumsFile) {
      checksums[name] = progress.sha256_of_file(entry.path());
    }
  }
  write_json_atomically(checkpoint / kChecksumsFile, checksums);
}

ModelConfig read_checkpoint_model_config(const std::filesystem::path& checkpoint) {
  check_has_file(checkpoint, kConfigFile);
  return read_model_config({checkpoint / kConfigFile, {}});
}

std::optional<int64_t> checkpoint_sequence_length(const std::filesystem::path& checkpoint) {
  ConfigProblems problems;
  const ConfigNode root = load_config_tree({checkpoint / kConfigFile, {}}, problems);
  problems.throw_if_any((checkpoint / kConfigFile).string());
  const ConfigNode* data = root.find("data");
  const ConfigNode* length = data == nullptr ? nullptr : data->find("sequence_length");
  if (length == nullptr) return std::nullopt;
  int64_t value = 0;
  detail::read_scalar({*length, "data.sequence_length", problems}, value, at_least(1));
  problems.throw_if_any((checkpoint / kConfigFile).string());
  return value;
}

void load_model_weights(const std::filesystem::path& checkpoint, Model& model) {
  load_weights_file(checkpoint, model);
}

void check_weights_fit(const WeightFiles& file, const Model& model) {
  const std::string misfits = list_misfits(file, model.parameters());
  SMOE_CHECK(CheckpointError, misfits.empty(),
             "{}: the weights do not fit the model that config.yaml describes:{}\nUse the config.yaml that "
             "was saved "
             "with these weights",
             file.path().string(), misfits);
}

void load_weights_file(const std::filesystem::path& path, Model& model) {
  const WeightFiles file(path);
  check_weights_fit(file, model);
  const at::NoGradGuard no_grad;
  for (const NamedParameter& parameter : model.parameters()) {
    at::Tensor target = parameter.tensor;
    target.copy_(file.tensor(parameter.name));
  }
}

std::filesystem::path checkpoint_tokenizer(const std::filesystem::path& checkpoint) {
  for (const char* name : {"tokenizer.model", "tokenizer.json"}) {
    if (std::filesystem::is_regular_file(checkpoint / name)) {
      return checkpoint / name;
    }
  }
  throw CheckpointError(
      fmt::format("{}: no tokenizer.model or tokenizer.json in the checkpoint; copy the tokenizer that the "
                  "model was trained with "
                  "into it",
                  checkpoint.string()));
}

Model load_model(const std::filesystem::path& path, at::Device device) {
  const std::filesystem::path checkpoint = resolve_checkpoint(path);
  verify_checkpoint(checkpoint);
  Model model(read_checkpoint_model_config(checkpoint), device);
  load_model_weights(checkpoint, model);
  for (const NamedParameter& parameter : model.parameters()) {
    parameter.tensor.set_requires_grad(false);
  }
  return model;
}

}  // namespace smoe
