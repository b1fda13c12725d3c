#include "smoe/train/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "smoe/core/error.h"
#include "smoe/model/checkpoint_reader.h"

namespace smoe {

RunFolder::RunFolder(std::filesystem::path path, bool resume) : path_(std::move(path)) {
  SMOE_CHECK(ConfigError, !path_.empty(), "run_folder is empty; give the folder that receives the run");
  std::error_code error;
  std::filesystem::create_directories(checkpoints(), error);
  SMOE_CHECK(ConfigError, !error, "run_folder {}: cannot be made: {}", path_.string(), error.message());
  lock();
  const auto existing = list_checkpoints(checkpoints());
  if (!resume && !existing.empty()) {
    ::close(lock_descriptor_);
    throw ConfigError(
        fmt::format("run_folder {}: holds checkpoints already (newest: {}). Pass --resume to go on with that "
                    "run, or choose "
                    "another folder with --set run_folder=DIR.",
                    path_.string(), existing.back().filename().string()));
  }
}

void RunFolder::lock() {
  const std::filesystem::path file = path_ / "lock";
  lock_descriptor_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  SMOE_CHECK(ConfigError, lock_descriptor_ >= 0, "run_folder {}: cannot be written: {}", path_.string(),
             std::strerror(errno));
  // The kernel releases the lock when the process ends, however it ends.
  if (::flock(lock_descriptor_, LOCK_EX | LOCK_NB) == 0) return;
  ::close(lock_descriptor_);
  throw ConfigError(
      fmt::format("run_folder {}: another job is training in it (it holds the lock on {}). Wait for it, "
                  "stop it, or choose another folder with --set run_folder=DIR.",
                  path_.string(), file.string()));
}

RunFolder::~RunFolder() { ::close(lock_descriptor_); }

}  // namespace smoe
