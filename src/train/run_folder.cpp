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
namespace {

void check_not_empty(const std::filesystem::path& path) {
  SMOE_CHECK(ConfigError, !path.empty(), "run_folder is empty; give the folder that receives the run");
}

void check_earlier_run(const std::filesystem::path& path, bool resume) {
  const auto existing = list_checkpoints(path / "checkpoints");
  if (resume || existing.empty()) return;
  throw ConfigError(
      fmt::format("run_folder {}: holds checkpoints already (newest: {}). Pass --resume to go on with that "
                  "run, or choose another folder with --set run_folder=DIR.",
                  path.string(), existing.back().filename().string()));
}

ConfigError in_use(const std::filesystem::path& path) {
  return ConfigError(
      fmt::format("run_folder {}: another job is training in it (it holds the lock on {}). Wait for it, "
                  "stop it, or choose another folder with --set run_folder=DIR.",
                  path.string(), (path / "lock").string()));
}

void check_writable(const std::filesystem::path& run_folder, const std::filesystem::path& path) {
  SMOE_CHECK(ConfigError, ::access(path.c_str(), W_OK) == 0,
             "run_folder {}: no right to write {}: {}. Choose another folder with --set run_folder=DIR.",
             run_folder.string(), path.string(), std::strerror(errno));
}

}  // namespace

std::filesystem::path nearest_existing_folder(const std::filesystem::path& path) {
  std::filesystem::path folder = std::filesystem::absolute(path);
  while (!std::filesystem::exists(folder)) folder = folder.parent_path();
  return folder;
}

void check_run_folder(const std::filesystem::path& path, bool resume) {
  check_not_empty(path);
  const std::filesystem::path folder = nearest_existing_folder(path);
  SMOE_CHECK(ConfigError, std::filesystem::is_directory(folder), "run_folder {}: {} is not a folder",
             path.string(), folder.string());
  check_writable(path, folder);
  for (const char* name : {"checkpoints", "lock", "config.yaml", "log.txt", "metrics.jsonl"}) {
    if (std::filesystem::exists(path / name)) check_writable(path, path / name);
  }
  const int descriptor = ::open((path / "lock").c_str(), O_RDWR | O_CLOEXEC);
  const bool is_locked = descriptor >= 0 && ::flock(descriptor, LOCK_EX | LOCK_NB) != 0;
  if (descriptor >= 0) ::close(descriptor);
  if (is_locked) throw in_use(path);
  check_earlier_run(path, resume);
}

RunFolder::RunFolder(std::filesystem::path path, bool resume) : path_(std::move(path)) { take(resume); }

RunFolder::RunFolder(std::filesystem::path path, bool resume, Communicator& all) : path_(std::move(path)) {
  if (all.is_main()) take(resume);
  all.barrier("run folder");
  SMOE_CHECK(
      ConfigError, std::filesystem::is_directory(path_),
      "rank {}: run_folder {} is not there although rank 0 made it: all processes must see one folder, on a "
      "file system that their nodes share",
      all.rank(), path_.string());
}

void RunFolder::take(bool resume) {
  check_not_empty(path_);
  std::error_code error;
  std::filesystem::create_directories(checkpoints(), error);
  SMOE_CHECK(ConfigError, !error, "run_folder {}: cannot be made: {}", path_.string(), error.message());
  lock();
  try {
    check_earlier_run(path_, resume);
  } catch (const ConfigError&) {
    ::close(lock_descriptor_);
    throw;
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
  throw in_use(path_);
}

RunFolder::~RunFolder() { ::close(lock_descriptor_); }

}  // namespace smoe
