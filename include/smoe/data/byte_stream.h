// Bytes of a file from front to back, decompressed where its name ends in .zst.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

namespace smoe {

class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // Fills `buffer` from its front; fewer bytes than asked for, or none, only at the end. Throws DataError.
  virtual size_t read(std::span<char> buffer) = 0;
  // Bytes of the file on disk that were used so far.
  virtual int64_t file_bytes_read() const = 0;
};

// Throws DataError if the file is missing, is a folder or cannot be opened. Reading a damaged or truncated
// .zst throws DataError.
std::unique_ptr<ByteStream> open_byte_stream(const std::filesystem::path& path);

}  // namespace smoe
