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

// Writes to a temporary name beside `path`, fsyncs it, renames it over `path` and fsyncs the folder.
// Throws Error naming the path, and leaves any old file untouched, if a step fails.
void write_file_atomically(const std::filesystem::path& path, std::string_view bytes);

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
