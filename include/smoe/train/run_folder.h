// The folder of one training run:
//
//   config.yaml    resolved config        metrics.jsonl   one JSON object a line
//   log.txt        messages with times    events.out.tfevents.*   the same figures for TensorBoard
//   lock           held while a job runs  checkpoints/step-<number>/, checkpoints/latest
#pragma once

#include <filesystem>

#include "smoe/distributed/communicator.h"

namespace smoe {

class RunFolder {
 public:
  // Makes the folder and locks it for this process. Throws ConfigError if another job holds the lock, if
  // there are checkpoints but `resume` is false, or if the folder cannot be made.
  RunFolder(std::filesystem::path path, bool resume);
  // With several processes rank 0 does all that; the others wait for it and check that they see the folder.
  RunFolder(std::filesystem::path path, bool resume, Communicator& all);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }
  std::filesystem::path metrics() const { return path_ / "metrics.jsonl"; }

 private:
  void take(bool resume);
  void lock();

  std::filesystem::path path_;
  int lock_descriptor_ = -1;
};

// The folder itself, or the nearest one above it that exists.
std::filesystem::path nearest_existing_folder(const std::filesystem::path& path);

// Throws what RunFolder would throw, and for files that an earlier run left and this one may not write. Makes
// and changes nothing.
void check_run_folder(const std::filesystem::path& path, bool resume);

}  // namespace smoe
