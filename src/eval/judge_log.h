// The file of finished answers of a judge (internal to the judge client): one JSON line an answer, keyed by
// the hash of its request.
#pragma once

#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "smoe/eval/judge_client.h"

namespace smoe {

class JudgeLog {
 public:
  // Reads `path` if it is there. A last line that a killed run left half-written is cut off; any other damage
  // throws DataError with the line.
  explicit JudgeLog(std::filesystem::path path);
  ~JudgeLog();
  JudgeLog(const JudgeLog&) = delete;
  JudgeLog& operator=(const JudgeLog&) = delete;

  // The answer to a request, if it is known.
  std::optional<JudgeReply> find(const std::string& request_hash) const;
  // Appends one line and brings it to the disk: answers cost money. Thread-safe.
  void add(const std::string& request_hash, const std::string& label, const JudgeReply& reply);

  const std::filesystem::path& path() const { return path_; }

 private:
  size_t read_lines();

  std::filesystem::path path_;
  int file_ = -1;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, JudgeReply> replies_;
};

}  // namespace smoe
