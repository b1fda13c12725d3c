// File access with the guarantees the rest of the library relies on: a written file or folder is
// complete or absent, never half; read errors name the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace smoe {

// The whole file as bytes. Throws DataError naming the path if it cannot be read.
std::string read_file(const std::filesystem::path& path);

// A file that is written piece by piece and appears under its name only when it is complete: the bytes go to
// a hidden temporary name beside it. An old file stays untouched until commit(). What a killed process left
// half-written for the same `path` is removed: such a file has no lock, while every writer holds one. All
// functions throw Error naming the path.
class AtomicFile {
 public:
  // The folder of `path` must exist.
  explicit AtomicFile(std::filesystem::path path);
  // Removes the temporary file unless commit() was called.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::string_view bytes);
  // The content is complete and on disk under `temporary_path()`; no write() may follow.
  void finish();
  // Finishes if need be, renames the file to its own name and fsyncs the folder.
  void commit();

  const std::filesystem::path& temporary_path() const { return temporary_path_; }
  int64_t size() const { return size_; }  // bytes written so far

 private:
  bool open_new(const std::filesystem::path& candidate);
  void write_through(std::string_view bytes);
  void check(bool succeeded, std::string_view action) const;

  std::filesystem::path path_;
  std::filesystem::path temporary_path_;
  std::string buffer_;  // small pieces, written together
  int descriptor_ = -1;
  int64_t size_ = 0;
  bool finished_ = false;
  bool committed_ = false;
};

// A whole file through an AtomicFile.
void write_file_atomically(const std::filesystem::path& path, std::string_view bytes);

// Makes the folder of `path` if needed and tries that a file can be made there, so that long work does not
// end with a result that cannot be written. Leaves an existing file untouched. Throws Error naming the path.
void prepare_output_file(const std::filesystem::path& path);

// SHA-256 of a file or of bytes as 64 lower-case hex digits.
std::string sha256_of_file(const std::filesystem::path& path);
std::string sha256_of_bytes(std::string_view bytes);

// A read-only memory map of a whole file. The bytes stay valid for the lifetime of the object.
class MappedFile {
 public:
  // Throws DataError if the file cannot be opened or mapped. An empty file maps to an empty span.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// A folder that appears under its final name only when it is complete. Files are written into
// `temporary_path()`; `commit()` fsyncs every file and the folder, then renames. A destroyed object
// that was not committed removes its temporary folder.
class AtomicFolder {
 public:
  // `final_path` must not exist. Throws Error if the temporary folder cannot be made.
  explicit AtomicFolder(std::filesystem::path final_path);
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  const std::filesystem::path& temporary_path() const { return temporary_path_; }
  void commit();

 private:
  std::filesystem::path final_path_;
  std::filesystem::path temporary_path_;
  bool committed_ = false;
};

}  // namespace smoe
