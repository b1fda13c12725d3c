// The writing side of safetensors: tensors stream to a temporary file beside the target, which is replaced by
// one rename once every byte is on disk.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "safetensors_types.h"
#include "smoe/core/error.h"
#include "smoe/model/safetensors.h"

namespace smoe {
namespace {

// A file under a temporary name that takes its final name in commit(), or vanishes.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::filesystem::path& path)
      : path_(path), temporary_path_(path.string() + ".tmp-" + std::to_string(::getpid())) {
    descriptor_ = ::open(temporary_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    check(descriptor_ >= 0, "create");
  }
  ~TemporaryFile() {
    if (descriptor_ >= 0) {
      ::close(descriptor_);
    }
    if (!committed_) {
      ::unlink(temporary_path_.c_str());
    }
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void write(const void* data, size_t size) {
    const char* next = static_cast<const char*>(data);
    while (size > 0) {
      // Linux writes at most 2 GiB - 4 KiB a call, so a large tensor takes several.
      const ssize_t written = ::write(descriptor_, next, size);
      if (written < 0 && errno == EINTR) {
        continue;
      }
      check(written > 0, "write to");
      next += written;
      size -= static_cast<size_t>(written);
    }
  }

  void commit() {
    check(::fsync(descriptor_) == 0, "flush");
    const int descriptor = std::exchange(descriptor_, -1);
    check(::close(descriptor) == 0, "close");
    check(::rename(temporary_path_.c_str(), path_.c_str()) == 0, "rename");
    committed_ = true;
    sync_folder();
  }

 private:
  // The rename itself must survive a power cut.
  void sync_folder() const {
    const std::filesystem::path folder = path_.has_parent_path() ? path_.parent_path() : ".";
    const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    check(descriptor >= 0, "open the folder of");
    const bool synced = ::fsync(descriptor) == 0;
    ::close(descriptor);
    check(synced, "flush the folder of");
  }

  void check(bool succeeded, std::string_view action) const {
    SMOE_CHECK(Error, succeeded, "{}: cannot {} the file: {}", path_.string(), action, std::strerror(errno));
  }

  std::filesystem::path path_;
  std::filesystem::path temporary_path_;
  int descriptor_ = -1;
  bool committed_ = false;
};

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
  TemporaryFile file(path);
  const uint64_t length = header.size();
  file.write(&length, sizeof(length));
  file.write(header.data(), header.size());
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor data = tensor.detach().cpu().contiguous();
    file.write(data.const_data_ptr(), static_cast<size_t>(data.nbytes()));
  }
  file.commit();
}

}  // namespace smoe
