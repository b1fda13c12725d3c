#include "smoe/core/files.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

#include "atomic_names.h"
#include "file_hash.h"
#include "smoe/core/error.h"

namespace smoe {
namespace {

using detail::parent_of;
using detail::sync_path;
using detail::temporary_name;

std::string last_error() { return std::generic_category().message(errno); }

// An open file descriptor, closed with the object.
class Descriptor {
 public:
  Descriptor(const std::filesystem::path& path, int flags)
      : number_(::open(path.c_str(), flags | O_CLOEXEC)) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  bool is_open() const { return number_ >= 0; }
  int number() const { return number_; }

 private:
  int number_;
};

// A regular file opened for reading, with its size.
struct OpenFile {
  explicit OpenFile(const std::filesystem::path& path) : descriptor(path, O_RDONLY) {
    SMOE_CHECK(DataError, descriptor.is_open(), "{}: cannot open the file: {}", path.string(), last_error());
    struct stat status {};
    SMOE_CHECK(DataError, ::fstat(descriptor.number(), &status) == 0, "{}: cannot read the file: {}",
               path.string(), last_error());
    SMOE_CHECK(DataError, !S_ISDIR(status.st_mode), "{}: expected a file, found a folder", path.string());
    size = static_cast<size_t>(status.st_size);
  }
  Descriptor descriptor;
  size_t size = 0;
};

// Up to `count` bytes; fewer only at the end of the file.
size_t read_some(const OpenFile& file, const std::filesystem::path& path, char* buffer, size_t count) {
  size_t done = 0;
  while (done < count) {
    const ssize_t got = ::read(file.descriptor.number(), buffer + done, count - done);
    if (got < 0 && errno == EINTR) continue;
    SMOE_CHECK(DataError, got >= 0, "{}: cannot read the file: {}", path.string(), last_error());
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

// SHA-256 of bytes that arrive in pieces.
class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new()) {
    check(context_ != nullptr && EVP_DigestInit_ex(context_, EVP_sha256(), nullptr) == 1);
  }
  ~Sha256() { EVP_MD_CTX_free(context_); }
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void update(std::string_view bytes) { check(EVP_DigestUpdate(context_, bytes.data(), bytes.size()) == 1); }

  std::string hex() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned int size = 0;
    check(EVP_DigestFinal_ex(context_, digest.data(), &size) == 1);
    std::string text;
    for (unsigned int i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
    return text;
  }

 private:
  static void check(bool ok) { SMOE_CHECK(Error, ok, "SHA-256 failed in the OpenSSL library"); }

  EVP_MD_CTX* context_;
};

}  // namespace

std::string read_file(const std::filesystem::path& path) {
  const OpenFile file(path);
  std::string bytes(file.size, '\0');
  bytes.resize(read_some(file, path, bytes.data(), bytes.size()));
  // Pipes and files of /proc have no size, and a file may grow while it is read.
  std::array<char, 65536> more{};
  while (const size_t got = read_some(file, path, more.data(), more.size())) bytes.append(more.data(), got);
  return bytes;
}

std::string sha256_of_file(const std::filesystem::path& path,
                           const std::function<void(int64_t num_bytes)>& progress) {
  const OpenFile file(path);
  Sha256 hash;
  std::vector<char> buffer(size_t{1} << 20);
  while (const size_t got = read_some(file, path, buffer.data(), buffer.size())) {
    hash.update({buffer.data(), got});
    progress(static_cast<int64_t>(got));
  }
  return hash.hex();
}

std::string sha256_of_file(const std::filesystem::path& path) {
  return sha256_of_file(path, [](int64_t) {});
}

std::string sha256_of_bytes(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hex();
}

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  const OpenFile file(path);
  if (file.size == 0) return;  // mmap refuses an empty range
  void* address = ::mmap(nullptr, file.size, PROT_READ, MAP_SHARED, file.descriptor.number(), 0);
  SMOE_CHECK(DataError, address != MAP_FAILED, "{}: cannot map the file ({} bytes): {}", path.string(),
             file.size, last_error());
  data_ = static_cast<const std::byte*>(address);
  size_ = file.size;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

AtomicFolder::AtomicFolder(std::filesystem::path final_path) : final_path_(std::move(final_path)) {
  if (!final_path_.has_filename()) final_path_ = final_path_.parent_path();  // "folder/"
  SMOE_CHECK(Error, !std::filesystem::exists(final_path_),
             "{}: the folder exists already; it is not overwritten", final_path_.string());
  temporary_path_ = temporary_name(final_path_);
  std::error_code error;
  std::filesystem::create_directories(parent_of(final_path_), error);
  if (!error) std::filesystem::create_directory(temporary_path_, error);
  SMOE_CHECK(Error, !error, "{}: cannot make the folder: {}", final_path_.string(), error.message());
}

AtomicFolder::~AtomicFolder() {
  std::error_code ignored;
  if (!committed_) std::filesystem::remove_all(temporary_path_, ignored);
}

void AtomicFolder::commit() {
  SMOE_ASSERT(!committed_);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(temporary_path_)) {
    if (entry.is_regular_file() || entry.is_directory()) sync_path(entry.path());
  }
  sync_path(temporary_path_);
  // rename() would silently replace an empty folder that has appeared meanwhile; that is harmless.
  SMOE_CHECK(Error, ::rename(temporary_path_.c_str(), final_path_.c_str()) == 0,
             "{}: cannot rename the finished folder {} to it: {}", final_path_.string(),
             temporary_path_.string(), last_error());
  committed_ = true;
  sync_path(parent_of(final_path_));
}

}  // namespace smoe
