// A large file that is written piece by piece and appears under its final name only when it is complete.
// For small files, write_file_atomically of core/files.h is enough.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string_view>

namespace smoe {

class AtomicOutputFile {
 public:
  // Opens a temporary name beside `path`. Throws DataError if that fails.
  explicit AtomicOutputFile(std::filesystem::path path);
  // Removes the temporary file unless commit() was called.
  ~AtomicOutputFile();
  AtomicOutputFile(const AtomicOutputFile&) = delete;
  AtomicOutputFile& operator=(const AtomicOutputFile&) = delete;

  // Appends. Throws DataError naming the file if the disk refuses.
  void write(std::string_view bytes);
  // Flushes and fsyncs: the content is on disk under the temporary name.
  void close();
  // Renames to the final name, after close().
  void commit();

  const std::filesystem::path& temporary_path() const { return temporary_path_; }
  int64_t size() const { return size_; }

 private:
  [[noreturn]] void fail(const char* action) const;

  std::filesystem::path path_;
  std::filesystem::path temporary_path_;
  std::FILE* file_ = nullptr;
  int64_t size_ = 0;
  bool committed_ = false;
};

}  // namespace smoe
