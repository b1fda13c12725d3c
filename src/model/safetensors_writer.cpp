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

std::string build_header(const std::filesystem::path& path, const TensorList& tensors,
                         const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) {
    header["__metadata__"] = metadata;
  }
  std::set<std::string_view> names = {"__metadata__"};
  uint64_t position = 0;
  for (const auto& [name, tensor] : tensors) {
    SMOE_CHECK(Error, names.insert(name).second, "{}: cannot write two tensors named \"{}\"", path.string(),
               name);
    const SafetensorsType* type = find_safetensors_type(tensor.scalar_type());
    SMOE_CHECK(Error, type != nullptr,
               "{}: tensor \"{}\" has dtype {}, which the format does not hold; supported: {}", path.string(),
               name, at::toString(tensor.scalar_type()), safetensors_type_names());
    const uint64_t bytes = static_cast<uint64_t>(tensor.numel()) * type->bytes;
    header[name] = {{"dtype", type->name},
                    {"shape", tensor.sizes().vec()},
                    {"data_offsets", {position, position + bytes}}};
    position += bytes;
  }
  std::string text = header.dump();
  // The format allows spaces after the JSON: they align the data to 8 bytes (the length field is 8 itself).
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, const TensorList& tensors,
                       const std::map<std::string, std::string>& metadata) {
  const std::string header = build_header(path, tensors, metadata);
  AtomicFile file(path);
  const uint64_t length = header.size();
  file.write({reinterpret_cast<const char*>(&length), sizeof(length)});
  file.write(header);
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor data = tensor.detach().cpu().contiguous();
    file.write({static_cast<const char*>(data.const_data_ptr()), data.nbytes()});
  }
  file.commit();
}

}  // namespace smoe
