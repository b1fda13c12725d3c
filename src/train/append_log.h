// A log file that survives a full disk: what cannot be written is kept in memory and tried again with the
// next record, and no half record stays in the file. A run must not end because a figure of it is not on
// disk.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace smoe {

class AppendLog {
 public:
  // Opens `path` at its end, or empty with `truncate`. Throws Error if it cannot be opened.
  AppendLog(std::filesystem::path path, bool truncate);
  // Tries what is left once more, and logs an error if it must be given up.
  ~AppendLog();
  AppendLog(const AppendLog&) = delete;
  AppendLog& operator=(const AppendLog&) = delete;

  // Appends a whole record. The first failure in a row is logged as an error, and so is the end of it.
  void append(std::string_view record);

  const std::filesystem::path& path() const { return path_; }

 private:
  bool write_pending();

  std::filesystem::path path_;
  int descriptor_ = -1;
  int64_t size_ = 0;     // of the complete records in the file
  std::string pending_;  // not in the file yet
  bool failing_ = false;
};

}  // namespace smoe
