// Shape legend: D model width, E experts, h expert width.
#include "smoe/infer/streaming_export.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>

#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/infer/streaming_package.h"
#include "smoe/model/checkpoint_reader.h"
#include "smoe/model/weight_files.h"

namespace smoe {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRoutedPart = ".routed_experts.";

// A model from wherever its tensors come.
struct ExportSource {
  std::string label;  // for messages
  ModelConfig config;
  std::vector<std::string> names;
  std::function<at::Tensor(const std::string&)> tensor;
};

class ExpertsFile {
 public:
  explicit ExpertsFile(fs::path path)
      : path_(std::move(path)),
        descriptor_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644)) {
    check(descriptor_ >= 0);
  }
  ~ExpertsFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  ExpertsFile(const ExpertsFile&) = delete;
  ExpertsFile& operator=(const ExpertsFile&) = delete;

  void append(const std::vector<std::byte>& block) {
    size_t done = 0;
    while (done < block.size()) {
      const ssize_t written = ::write(descriptor_, block.data() + done, block.size() - done);
      if (written < 0 && errno == EINTR) continue;
      check(written >= 0);
      done += static_cast<size_t>(written);
    }
  }

 private:
  void check(bool ok) const {
    SMOE_CHECK(Error, ok, "{}: cannot write the file: {}", path_.string(), std::strerror(errno));
  }

  fs::path path_;
  int descriptor_;
};

at::Tensor float_tensor(const ExportSource& source, const std::string& name) {
  return source.tensor(name).detach().to(at::kCPU, at::kFloat).contiguous();
}

void write_layer(const ExportSource& source, int64_t moe_layer, ExpertsFile& file, PackageIndex& index) {
  const std::string prefix =
      fmt::format("layers.{}{}", source.config.num_dense_layers + moe_layer, kRoutedPart);
  const at::Tensor gate_EhD = float_tensor(source, prefix + "gate_proj.weight");
  const at::Tensor up_EhD = float_tensor(source, prefix + "up_proj.weight");
  const at::Tensor down_EDh = float_tensor(source, prefix + "down_proj.weight");
  const int64_t values = index.layout.shape.dim * index.layout.shape.expert_dim;
  for (const at::Tensor& tensor : {gate_EhD, up_EhD, down_EDh}) {
    SMOE_CHECK(
        CheckpointError, tensor.numel() == index.num_experts * values,
        "{}: the routed experts of layer {} do not have the sizes of config.yaml; use the config.yaml that "
        "was saved with these weights",
        source.label, source.config.num_dense_layers + moe_layer);
  }
  std::vector<std::byte> block(static_cast<size_t>(index.layout.block_bytes));
  for (int64_t expert = 0; expert < index.num_experts; ++expert) {
    const int64_t offset = expert * values;
    encode_expert(index.layout,
                  {gate_EhD.const_data_ptr<float>() + offset, up_EhD.const_data_ptr<float>() + offset,
                   down_EDh.const_data_ptr<float>() + offset},
                  block.data());
    index.blocks.push_back({std::ssize(index.blocks) * index.layout.block_bytes,
                            expert_checksum(block.data(), index.layout.block_bytes)});
    file.append(block);
  }
}

int64_t write_resident(const ExportSource& source, const fs::path& path) {
  TensorList tensors;
  for (const std::string& name : source.names) {
    if (name.find(kRoutedPart) == std::string::npos) {
      tensors.emplace_back(name, source.tensor(name).detach().cpu().contiguous());
    }
  }
  write_safetensors(path, tensors);
  return static_cast<int64_t>(fs::file_size(path));
}

// Writes everything but config and tokenizer, and then the index over what the folder holds.
ExportSummary fill_package(const ExportSource& source, const fs::path& folder, ExpertEncoding encoding) {
  PackageIndex index;
  index.layout = make_expert_layout(encoding, {source.config.dim, source.config.expert_dim});
  index.num_moe_layers = source.config.num_moe_layers;
  index.num_experts = source.config.num_experts;
  ExportSummary summary;
  summary.resident_bytes = write_resident(source, folder / "resident.safetensors");
  for (const auto& entry : fs::directory_iterator(folder)) {
    index.file_sha256[entry.path().filename().string()] = sha256_of_file(entry.path());
  }
  ExpertsFile file(folder / "experts.bin");
  for (int64_t layer = 0; layer < index.num_moe_layers; ++layer) write_layer(source, layer, file, index);
  write_package_index(folder, index);
  summary.num_experts = std::ssize(index.blocks);
  summary.block_bytes = index.layout.block_bytes;
  summary.experts_bytes = summary.num_experts * summary.block_bytes;
  return summary;
}

void check_has_experts(const ModelConfig& config, const std::string& label) {
  SMOE_CHECK(CheckpointError, config.architecture != Architecture::kDense && config.num_moe_layers > 0,
             "{}: the model is dense; only models with routed experts can be streamed", label);
}

}  // namespace

ExportSummary export_streaming_package(const fs::path& path, const fs::path& out, ExpertEncoding encoding) {
  const fs::path checkpoint = resolve_checkpoint(path);
  verify_checkpoint(checkpoint);
  const WeightFiles file(checkpoint);
  const ExportSource source{file.path().string(), read_checkpoint_model_config(checkpoint), file.names(),
                            [&](const std::string& name) { return file.tensor(name); }};
  check_has_experts(source.config, checkpoint.string());
  AtomicFolder folder(out);
  // A tokenizer.json does not say what BOS and EOS are: special_tokens_map.json beside it does.
  for (const char* name : {"config.yaml", "tokenizer.model", "tokenizer.json", "special_tokens_map.json",
                           "chat_template.yaml"}) {
    if (fs::is_regular_file(checkpoint / name))
      fs::copy_file(checkpoint / name, folder.temporary_path() / name);
  }
  const ExportSummary summary = fill_package(source, folder.temporary_path(), encoding);
  folder.commit();
  return summary;
}

ExportSummary export_streaming_package(const Model& model, const fs::path& out, ExpertEncoding encoding) {
  std::map<std::string, at::Tensor> tensors;
  ExportSource source{
      "the model", model.config(), {}, [&](const std::string& name) { return tensors.at(name); }};
  for (const NamedParameter& parameter : model.parameters()) {
    tensors[parameter.name] = parameter.tensor;
    source.names.push_back(parameter.name);
  }
  check_has_experts(source.config, source.label);
  AtomicFolder folder(out);
  write_file_atomically(folder.temporary_path() / "config.yaml", dump_config(source.config));
  const ExportSummary summary = fill_package(source, folder.temporary_path(), encoding);
  folder.commit();
  return summary;
}

}  // namespace smoe
