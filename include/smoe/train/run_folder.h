// The folder of one training run:
//
//   config.yaml    resolved config        metrics.jsonl   one JSON object a line
//   log.txt        messages with times    events.out.tfevents.*   the same figures for TensorBoard
//   lock           held while a job runs  checkpoints/step-<number>/, checkpoints/latest
#pragma once

#include <filesystem>

namespace smoe {

class RunFolder {
 public:
  // Makes the folder and locks it for this process. Throws ConfigError if another job holds the lock, if
  // there are checkpoints but `resume` is false, or if the folder cannot be made.
  RunFolder(std::filesystem::path path, bool resume);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }
  std::filesystem::path metrics() const { return path_ / "metrics.jsonl"; }

 private:
  void lock();

  std::filesystem::path path_;
  int lock_descriptor_ = -1;
};

}  // namespace smoe
