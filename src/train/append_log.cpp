#include "append_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "smoe/core/error.h"
#include "smoe/core/log.h"

namespace smoe {
namespace {

// Hours of records; beyond that the newest are dropped.
constexpr size_t kMaxPendingBytes = size_t{64} << 20;

}  // namespace

AppendLog::AppendLog(std::filesystem::path path, bool truncate) : path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | (truncate ? O_TRUNC : 0), 0644);
  const off_t end = descriptor_ < 0 ? -1 : ::lseek(descriptor_, 0, SEEK_END);
  SMOE_CHECK(Error, end >= 0, "{}: cannot be opened for writing: {}", path_.string(),
             std::generic_category().message(errno));
  size_ = end;
}

AppendLog::~AppendLog() {
  if (!pending_.empty() && !write_pending())
    spdlog::error("{}: the last {} bytes could not be written", path_.string(), pending_.size());
  ::close(descriptor_);
}

void AppendLog::append(std::string_view record) {
  if (pending_.size() + record.size() <= kMaxPendingBytes) pending_ += record;
  if (write_pending()) {
    if (failing_) spdlog::warn("{}: can be written again", path_.string());
    failing_ = false;
    return;
  }
  if (!failing_) {
    spdlog::error("{}: cannot be written: {}. The run goes on, and its figures are kept until they can be.",
                  path_.string(), std::generic_category().message(errno));
  }
  failing_ = true;
}

bool AppendLog::write_pending() {
  size_t done = 0;
  while (done < pending_.size()) {
    const ssize_t written = ::pwrite(descriptor_, pending_.data() + done, pending_.size() - done,
                                     static_cast<off_t>(size_ + static_cast<int64_t>(done)));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const int reason = written == 0 ? ENOSPC : errno;
      // Half a record would make the file unreadable; what is cut off stays pending.
      const int ignored = ::ftruncate(descriptor_, static_cast<off_t>(size_));
      static_cast<void>(ignored);
      errno = reason;
      return false;
    }
    done += static_cast<size_t>(written);
  }
  size_ += static_cast<int64_t>(done);
  pending_.clear();
  return true;
}

}  // namespace smoe
