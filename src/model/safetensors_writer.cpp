// The writing side of safetensors: tensors stream to a temporary file beside the target, which is replaced by
// one rename once every byte is on disk.
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "safetensors_types.h"
#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/model/safetensors.h"

namespace smoe {
namespace {

const SafetensorsType& type_of(const std::filesystem::path& path, const DeferredTensor& tensor) {
  const SafetensorsType* type = find_safetensors_type(tensor.dtype);
  SMOE_CHECK(Error, type != nullptr,
             "{}: tensor \"{}\" has dtype {}, which the format does not hold; supported: {}", path.string(),
             tensor.name, at::toString(tensor.dtype), safetensors_type_names());
  return *type;
}

std::string build_header(const std::filesystem::path& path, const std::vector<DeferredTensor>& tensors,
                         const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) {
    header["__metadata__"] = metadata;
  }
  std::set<std::string_view> names = {"__metadata__"};
  uint64_t position = 0;
  for (const DeferredTensor& tensor : tensors) {
    SMOE_CHECK(Error, names.insert(tensor.name).second, "{}: cannot write two tensors named \"{}\"",
               path.string(), tensor.name);
    const SafetensorsType& type = type_of(path, tensor);
    const uint64_t bytes = tensor.num_bytes();
    header[tensor.name] = {
        {"dtype", type.name}, {"shape", tensor.sizes}, {"data_offsets", {position, position + bytes}}};
    position += bytes;
  }
  std::string text = header.dump();
  // The format allows spaces after the JSON: they align the data to 8 bytes (the length field is 8 itself).
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

uint64_t DeferredTensor::num_bytes() const {
  uint64_t bytes = c10::elementSize(dtype);
  for (const int64_t size : sizes) bytes *= static_cast<uint64_t>(size);
  return bytes;
}

void write_safetensors(const std::filesystem::path& path, const std::vector<DeferredTensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  const std::string header = build_header(path, tensors, metadata);
  AtomicFile file(path);
  const uint64_t length = header.size();
  file.write({reinterpret_cast<const char*>(&length), sizeof(length)});
  file.write(header);
  for (const DeferredTensor& tensor : tensors) {
    const at::Tensor data = tensor.make().detach().cpu().contiguous();
    SMOE_ASSERT(data.scalar_type() == tensor.dtype && data.sizes() == at::IntArrayRef(tensor.sizes));
    file.write({static_cast<const char*>(data.const_data_ptr()), data.nbytes()});
  }
  file.commit();
}

void write_safetensors(const std::filesystem::path& path, const TensorList& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<DeferredTensor> deferred;
  deferred.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) {
    deferred.push_back({name, tensor.scalar_type(), tensor.sizes().vec(), [held = tensor] { return held; }});
  }
  write_safetensors(path, deferred, metadata);
}

}  // namespace smoe
