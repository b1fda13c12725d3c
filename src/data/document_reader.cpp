#include "smoe/data/document_reader.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "document_json.h"
#include "smoe/core/error.h"
#include "smoe/core/json_depth.h"
#include "smoe/data/utf8_validity.h"

namespace smoe {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;
// A line this long is not text in lines; without a limit a binary file would fill the memory first.
constexpr size_t kMaxLineBytes = size_t{1} << 28;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

enum class FileKind { kJsonLines, kText, kUnknown };

FileKind kind_of(std::filesystem::path path) {
  if (path.extension() == ".zst") {
    path = path.stem();
  }
  const std::string extension = path.extension().string();
  if (extension == ".jsonl" || extension == ".ndjson") {
    return FileKind::kJsonLines;
  }
  return extension == ".txt" || extension == ".text" ? FileKind::kText : FileKind::kUnknown;
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\n\v\f") == std::string_view::npos;
}

void drop_byte_order_mark(std::string& bytes) {
  if (bytes.starts_with(kByteOrderMark)) {
    bytes.erase(0, kByteOrderMark.size());
  }
}

std::string keys_of(const nlohmann::json& object) {
  std::string keys;
  for (const auto& item : object.items()) {
    keys += (keys.empty() ? "" : ", ") + item.key();
  }
  return keys.empty() ? "none" : keys;
}

// "[json.exception.parse_error.101] parse error at line 1, column 5: syntax error ..." without what we say
// better.
std::string reason_of(const nlohmann::json::parse_error& error) {
  const std::string_view text = error.what();
  const size_t column = text.find("column ");
  const size_t colon = text.find(": ", column == std::string_view::npos ? 0 : column);
  return std::string(colon == std::string_view::npos ? text : text.substr(colon + 2));
}

}  // namespace

nlohmann::json parse_document_json(const DocumentRecord& record) {
  if (const auto offset = first_invalid_utf8(record.bytes)) {
    throw DataError(fmt::format("{}:{}:{}: invalid UTF-8 (byte 0x{:02X}); convert the file to UTF-8",
                                *record.file, record.line, *offset + 1,
                                static_cast<unsigned char>(record.bytes[*offset])));
  }
  SMOE_CHECK(DataError, !is_too_deep_json(record.bytes), "{}:{}:1: the JSON nests more than {} levels deep",
             *record.file, record.line, kMaxJsonDepth);
  try {
    return nlohmann::json::parse(record.bytes);
  } catch (const nlohmann::json::parse_error& error) {
    throw DataError(fmt::format("{}:{}:{}: not valid JSON: {}; every line must be one JSON object",
                                *record.file, record.line, error.byte, reason_of(error)));
  } catch (const nlohmann::json::exception& error) {
    // A number too large for any type has no position.
    throw DataError(fmt::format("{}:{}:1: not usable JSON: {}", *record.file, record.line, error.what()));
  }
}

std::string document_text(DocumentRecord&& record, const std::string& text_key) {
  if (record.line == 0) {
    const auto offset = first_invalid_utf8(record.bytes);
    if (offset) {
      const std::string_view before = std::string_view(record.bytes).substr(0, *offset);
      const auto line = std::count(before.begin(), before.end(), '\n') + 1;
      const size_t last_break = before.rfind('\n');
      const size_t column = *offset - (last_break == std::string_view::npos ? 0 : last_break + 1) + 1;
      throw DataError(fmt::format("{}:{}:{}: invalid UTF-8 (byte 0x{:02X}); convert the file to UTF-8",
                                  *record.file, line, column,
                                  static_cast<unsigned char>(record.bytes[*offset])));
    }
    return std::move(record.bytes);
  }
  nlohmann::json json = parse_document_json(record);
  SMOE_CHECK(DataError, json.is_object(), "{}:{}:1: a JSON {} instead of an object with the key \"{}\"",
             *record.file, record.line, json.type_name(), text_key);
  const auto found = json.find(text_key);
  SMOE_CHECK(DataError, found != json.end(),
             "{}:{}:1: the key \"{}\" is missing (found: {}); name the key of the text with --text-key",
             *record.file, record.line, text_key, keys_of(json));
  SMOE_CHECK(DataError, found->is_string(), "{}:{}:1: \"{}\" is a JSON {} instead of a string", *record.file,
             record.line, text_key, found->type_name());
  return std::move(found->get_ref<std::string&>());
}

DocumentReader::DocumentReader(std::vector<std::filesystem::path> files) : files_(std::move(files)) {
  SMOE_CHECK(DataError, !files_.empty(), "no input files are given");
  for (const std::filesystem::path& file : files_) {
    SMOE_CHECK(DataError, std::filesystem::exists(file), "{}: file not found", file.string());
    SMOE_CHECK(DataError, !std::filesystem::is_directory(file), "{}: is a folder; name the files in it",
               file.string());
    SMOE_CHECK(DataError, kind_of(file) != FileKind::kUnknown,
               "{}: unknown kind of file; allowed are .jsonl, .ndjson, .txt and .text, each also with .zst",
               file.string());
    if (std::filesystem::is_regular_file(file)) {  // a pipe has no size to check or to count
      const auto bytes = static_cast<int64_t>(std::filesystem::file_size(file));
      SMOE_CHECK(DataError, bytes > 0, "{}: the file is empty", file.string());
      total_bytes_ += bytes;
    }
  }
}

int64_t DocumentReader::bytes_read() const {
  return bytes_of_closed_files_ + (stream_ ? stream_->file_bytes_read() : 0);
}

bool DocumentReader::next(DocumentRecord& record) {
  for (;;) {
    if (!stream_) {
      if (next_file_ == files_.size()) {
        return false;
      }
      open_next_file();
    }
    if (is_json_lines_ ? next_line(record) : whole_file(record)) {
      ++documents_in_file_;
      return true;
    }
    SMOE_CHECK(DataError, documents_in_file_ > 0, "{}: the file holds no document", *file_name_);
    close_file();
  }
}

void DocumentReader::open_next_file() {
  const std::filesystem::path& path = files_[next_file_++];
  stream_ = open_byte_stream(path);
  file_name_ = std::make_shared<const std::string>(path.string());
  is_json_lines_ = kind_of(path) == FileKind::kJsonLines;
  line_ = 0;
  documents_in_file_ = 0;
  buffer_.resize(kBufferBytes);
  buffer_begin_ = buffer_end_ = 0;
}

void DocumentReader::close_file() {
  bytes_of_closed_files_ += stream_->file_bytes_read();
  stream_.reset();
}

bool DocumentReader::refill() {
  buffer_begin_ = 0;
  buffer_end_ = stream_->read(buffer_);
  return buffer_end_ > 0;
}

// Reads up to and including the next line break, which is dropped. False: nothing was left.
bool DocumentReader::append_line(std::string& line) {
  bool any = false;
  for (;;) {
    if (buffer_begin_ == buffer_end_ && !refill()) {
      return any;
    }
    any = true;
    const char* begin = buffer_.data() + buffer_begin_;
    const auto* end = static_cast<const char*>(std::memchr(begin, '\n', buffer_end_ - buffer_begin_));
    const size_t count = end == nullptr ? buffer_end_ - buffer_begin_ : static_cast<size_t>(end - begin);
    line.append(begin, count);
    buffer_begin_ += count + (end == nullptr ? 0 : 1);
    SMOE_CHECK(DataError, line.size() <= kMaxLineBytes,
               "{}:{}:1: a line of more than {} bytes; is this JSON lines?", *file_name_, line_ + 1,
               kMaxLineBytes);
    if (end != nullptr) {
      return true;
    }
  }
}

bool DocumentReader::next_line(DocumentRecord& record) {
  for (;;) {
    record.bytes.clear();
    if (!append_line(record.bytes)) {
      return false;
    }
    if (++line_ == 1) {
      drop_byte_order_mark(record.bytes);
    }
    if (!is_blank(record.bytes)) {
      record.file = file_name_;
      record.line = line_;
      return true;
    }
  }
}

bool DocumentReader::whole_file(DocumentRecord& record) {
  if (documents_in_file_ > 0) {
    return false;
  }
  record.bytes.clear();
  while (refill()) {
    record.bytes.append(buffer_.data(), buffer_end_);
  }
  drop_byte_order_mark(record.bytes);
  record.file = file_name_;
  record.line = 0;
  return !is_blank(record.bytes);
}

}  // namespace smoe
