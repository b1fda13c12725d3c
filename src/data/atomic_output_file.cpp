#include "smoe/data/atomic_output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "smoe/core/error.h"

namespace smoe {

AtomicOutputFile::AtomicOutputFile(std::filesystem::path path)
    : path_(std::move(path)), temporary_path_(path_.string() + fmt::format(".tmp-{}", ::getpid())) {
  file_ = std::fopen(temporary_path_.c_str(), "wb");
  if (file_ == nullptr) {
    fail("open for writing");
  }
}

AtomicOutputFile::~AtomicOutputFile() {
  if (file_ != nullptr) {
    std::fclose(file_);
  }
  if (!committed_) {
    std::error_code ignored;  // nothing better to do with it in a destructor
    std::filesystem::remove(temporary_path_, ignored);
  }
}

void AtomicOutputFile::fail(const char* action) const {
  throw DataError(fmt::format("{}: cannot {}: {}", temporary_path_.string(), action, std::strerror(errno)));
}

void AtomicOutputFile::write(std::string_view bytes) {
  SMOE_ASSERT(file_ != nullptr);
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) {
    fail("write");
  }
  size_ += static_cast<int64_t>(bytes.size());
}

void AtomicOutputFile::close() {
  SMOE_ASSERT(file_ != nullptr);
  if (std::fflush(file_) != 0 || ::fsync(::fileno(file_)) != 0) {
    fail("flush to disk");
  }
  std::FILE* file = std::exchange(file_, nullptr);
  if (std::fclose(file) != 0) {
    fail("close");
  }
}

void AtomicOutputFile::commit() {
  SMOE_ASSERT(file_ == nullptr && !committed_);
  if (std::rename(temporary_path_.c_str(), path_.c_str()) != 0) {
    fail("rename to its final name");
  }
  committed_ = true;
  // Without this the new name may be lost with the power though the content is safe.
  const std::filesystem::path folder = path_.has_parent_path() ? path_.parent_path() : ".";
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY);
  if (descriptor >= 0) {
    ::fsync(descriptor);
    ::close(descriptor);
  }
}

}  // namespace smoe
