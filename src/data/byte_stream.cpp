#include "smoe/data/byte_stream.h"

#include <zstd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "smoe/core/error.h"

namespace smoe {
namespace {

class PlainStream : public ByteStream {
 public:
  explicit PlainStream(std::filesystem::path path) : path_(std::move(path)) {
    SMOE_CHECK(DataError, std::filesystem::exists(path_), "{}: file not found", path_.string());
    SMOE_CHECK(DataError, !std::filesystem::is_directory(path_), "{}: is a folder; name the files in it",
               path_.string());
    file_.reset(std::fopen(path_.c_str(), "rb"));
    SMOE_CHECK(DataError, file_ != nullptr, "{}: cannot open: {}", path_.string(), std::strerror(errno));
  }

  size_t read(std::span<char> buffer) override {
    const size_t count = std::fread(buffer.data(), 1, buffer.size(), file_.get());
    SMOE_CHECK(DataError, count == buffer.size() || std::ferror(file_.get()) == 0,
               "{}: cannot read after byte {}: {}", path_.string(), file_bytes_read_, std::strerror(errno));
    file_bytes_read_ += static_cast<int64_t>(count);
    return count;
  }

  int64_t file_bytes_read() const override { return file_bytes_read_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::filesystem::path path_;
  std::unique_ptr<std::FILE, Close> file_;
  int64_t file_bytes_read_ = 0;
};

class ZstdStream : public ByteStream {
 public:
  explicit ZstdStream(const std::filesystem::path& path)
      : name_(path.string()), file_(path), context_(ZSTD_createDCtx()), input_(ZSTD_DStreamInSize()) {
    SMOE_CHECK(Error, context_ != nullptr, "{}: no memory for decompression", name_);
    // Files made with --ultra --long need a window beyond the default limit.
    ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_windowLogMax, 31);
  }

  size_t read(std::span<char> buffer) override {
    ZSTD_outBuffer out{buffer.data(), buffer.size(), 0};
    while (out.pos < out.size) {
      if (in_.pos == in_.size && !refill()) {
        if (flush(out)) {
          continue;
        }
        break;
      }
      decompress(out);
    }
    return out.pos;
  }

  int64_t file_bytes_read() const override { return file_.file_bytes_read(); }

 private:
  struct Free {
    void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
  };

  bool refill() {
    in_ = {input_.data(), file_.read(input_), 0};
    return in_.size > 0;
  }

  void decompress(ZSTD_outBuffer& out) {
    pending_ = ZSTD_decompressStream(context_.get(), &out, &in_);
    SMOE_CHECK(DataError, ZSTD_isError(pending_) == 0,
               "{}: not a valid zstd file: {} (before compressed byte {}); download or compress it again",
               name_, ZSTD_getErrorName(pending_), file_.file_bytes_read());
  }

  // At the end of the file the decoder may still hold output. Returns whether it gave any.
  bool flush(ZSTD_outBuffer& out) {
    if (pending_ == 0) {
      return false;
    }
    const size_t before = out.pos;
    decompress(out);
    SMOE_CHECK(DataError, out.pos > before || pending_ == 0,
               "{}: truncated: the file ends inside a zstd frame (after {} compressed bytes); download or "
               "compress it "
               "again",
               name_, file_.file_bytes_read());
    return out.pos > before;
  }

  std::string name_;
  PlainStream file_;
  std::unique_ptr<ZSTD_DCtx, Free> context_;
  std::vector<char> input_;
  ZSTD_inBuffer in_{nullptr, 0, 0};
  size_t pending_ = 0;  // 0: between frames, so that the file may end here
};

}  // namespace

std::unique_ptr<ByteStream> open_byte_stream(const std::filesystem::path& path) {
  if (path.extension() == ".zst") {
    return std::make_unique<ZstdStream>(path);
  }
  return std::make_unique<PlainStream>(path);
}

}  // namespace smoe
