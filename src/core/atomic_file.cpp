#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <system_error>
#include <utility>

#include "atomic_names.h"
#include "smoe/core/error.h"
#include "smoe/core/files.h"

namespace smoe {
namespace detail {

std::filesystem::path parent_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

std::string temporary_prefix(const std::filesystem::path& path) {
  const std::filesystem::path name = path.has_filename() ? path.filename() : path.parent_path().filename();
  return fmt::format(".{}.tmp-", name.string());
}

std::filesystem::path temporary_name(const std::filesystem::path& path) {
  static std::atomic<uint64_t> counter{0};
  return parent_of(path) / fmt::format("{}{}-{}", temporary_prefix(path), ::getpid(), counter.fetch_add(1));
}

void sync_path(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool synced = descriptor >= 0 && ::fsync(descriptor) == 0;
  const int reason = errno;
  if (descriptor >= 0) ::close(descriptor);
  SMOE_CHECK(Error, synced, "{}: cannot flush to disk: {}", path.string(),
             std::generic_category().message(reason));
}

}  // namespace detail

namespace {

constexpr size_t kBufferBytes = size_t{1} << 16;

bool is_temporary_name(const std::string& name, const std::string& prefix) {
  return name.size() > prefix.size() && name.starts_with(prefix) &&
         name.find_first_not_of("0123456789-", prefix.size()) == std::string::npos;
}

// The lock tells more than the process id in the name: ids are used again, and those of a container or of
// another machine with the same disk mean nothing here. Without locks on a file system nothing is removed.
void remove_if_abandoned(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor < 0) return;
  if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) ::unlink(path.c_str());
  ::close(descriptor);
}

void remove_leftovers(const std::filesystem::path& path) {
  const std::string prefix = detail::temporary_prefix(path);
  std::error_code error;
  for (std::filesystem::directory_iterator entry(detail::parent_of(path), error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    if (is_temporary_name(entry->path().filename().string(), prefix) &&
        std::filesystem::is_regular_file(entry->symlink_status(ignored))) {
      remove_if_abandoned(entry->path());
    }
  }
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path path) : path_(std::move(path)) {
  std::error_code ignored;  // open() will report it
  SMOE_CHECK(Error, !std::filesystem::is_directory(path_, ignored),
             "{}: cannot write the file: it is a folder", path_.string());
  remove_leftovers(path_);
  while (!open_new(detail::temporary_name(path_))) {
  }
}

AtomicFile::~AtomicFile() {
  if (!committed_ && descriptor_ >= 0) ::unlink(temporary_path_.c_str());
  if (descriptor_ >= 0) ::close(descriptor_);
}

// False if the name is taken, or was taken away before the lock was held.
bool AtomicFile::open_new(const std::filesystem::path& candidate) {
  const int descriptor = ::open(candidate.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (descriptor < 0 && errno == EEXIST) return false;
  check(descriptor >= 0, "write");
  // Waits only for another writer of `path_` that tries whether this file is a leftover.
  while (::flock(descriptor, LOCK_EX) != 0 && errno == EINTR) {
  }
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || status.st_nlink == 0) {
    ::close(descriptor);
    return false;
  }
  descriptor_ = descriptor;
  temporary_path_ = candidate;
  return true;
}

void AtomicFile::check(bool succeeded, std::string_view action) const {
  SMOE_CHECK(Error, succeeded, "{}: cannot {} the file: {}", path_.string(), action,
             std::generic_category().message(errno));
}

void AtomicFile::write(std::string_view bytes) {
  SMOE_ASSERT(!finished_);
  size_ += static_cast<int64_t>(bytes.size());
  if (buffer_.size() + bytes.size() > kBufferBytes) {
    write_through(buffer_);
    buffer_.clear();
  }
  if (bytes.size() > kBufferBytes) {
    write_through(bytes);
  } else {
    buffer_.append(bytes);
  }
}

void AtomicFile::write_through(std::string_view bytes) {
  // Linux writes at most 2 GiB - 4 KiB a call, so a large piece takes several.
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    check(written > 0, "write");
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

void AtomicFile::finish() {
  SMOE_ASSERT(!finished_);
  write_through(buffer_);
  check(::fsync(descriptor_) == 0, "flush");
  finished_ = true;
}

void AtomicFile::commit() {
  SMOE_ASSERT(!committed_);
  if (!finished_) finish();
  // The descriptor is closed last: its lock keeps others from taking the file for a leftover.
  check(::rename(temporary_path_.c_str(), path_.c_str()) == 0, "rename");
  committed_ = true;
  check(::close(std::exchange(descriptor_, -1)) == 0, "close");
  detail::sync_path(detail::parent_of(path_));
}

void write_file_atomically(const std::filesystem::path& path, std::string_view bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

void prepare_output_file(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(detail::parent_of(path), error);
  SMOE_CHECK(Error, !error, "{}: cannot make the folder: {}", detail::parent_of(path).string(),
             error.message());
  const AtomicFile probe(path);
}

}  // namespace smoe
