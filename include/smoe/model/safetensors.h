// Reading and writing the safetensors format: 8 bytes of header length, a JSON header, raw tensors.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace smoe {

using TensorList = std::vector<std::pair<std::string, at::Tensor>>;

// Writes contiguous little-endian tensors in the order given, with 8-byte aligned data and optional string
// metadata. dtypes: float64/32/16, bfloat16, int64/32/16/8, uint8, bool. Streams tensor by tensor.
// Throws Error naming the path on any I/O failure; an existing file is replaced only on success.
void write_safetensors(const std::filesystem::path& path, const TensorList& tensors,
                       const std::map<std::string, std::string>& metadata = {});

// A tensor that is made when its turn comes to be written, so that a converted model is never in memory as a
// whole. `make` must give a tensor of `dtype` and `sizes`.
struct DeferredTensor {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> sizes;
  std::function<at::Tensor()> make;

  uint64_t num_bytes() const;
};
void write_safetensors(const std::filesystem::path& path, const std::vector<DeferredTensor>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

// A parsed file: tensors are views into a memory map that lives as long as any of them.
class SafetensorsFile {
 public:
  // Checks the whole header: length, JSON, dtypes, shapes, offsets (inside the file, without gaps or
  // overlaps). Throws CheckpointError naming the path and the tensor.
  explicit SafetensorsFile(const std::filesystem::path& path);

  std::vector<std::string> names() const;  // in file order
  const TensorList& tensors() const { return tensors_; }
  bool contains(const std::string& name) const;
  // A read-only view of the mapped data; clone before writing. Throws CheckpointError if absent.
  at::Tensor tensor(const std::string& name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  TensorList tensors_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace smoe
