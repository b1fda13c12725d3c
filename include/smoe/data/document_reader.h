// Documents out of text files: JSON lines or plain text, one after another, without holding a file in memory.
//
//   *.jsonl, *.ndjson   one JSON object a line; the text is the string under a key. Lines of only white space
//   are
//                       skipped.
//   *.txt, *.text       the whole file is one document.
//
// Each may be compressed (*.jsonl.zst). A byte order mark at the start of a file is dropped. Errors name
// file:line:column, the column in bytes from 1.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "smoe/data/byte_stream.h"

namespace smoe {

// One document as it stands in the file. Cheap to make: parsing is left to whoever needs the text, so that
// several threads can do it.
struct DocumentRecord {
  std::string bytes;  // a JSON line, or the whole text
  std::shared_ptr<const std::string> file;
  int64_t line = 0;  // from 1; 0: plain text
};

// The text of a record: valid UTF-8. Throws DataError for bad JSON, a missing or non-string key and invalid
// UTF-8.
std::string document_text(DocumentRecord&& record, const std::string& text_key);

class DocumentReader {
 public:
  // Looks at all files at once: throws DataError if one is missing, empty, a folder or of an unknown kind, or
  // none is given.
  explicit DocumentReader(std::vector<std::filesystem::path> files);

  // Puts the next document into `record` and returns true, or returns false at the end of the last file.
  // Throws DataError if a file cannot be read or holds no document at all.
  bool next(DocumentRecord& record);

  // Bytes on disk: of all files, and of those read so far (compressed sizes where compressed).
  int64_t total_bytes() const { return total_bytes_; }
  int64_t bytes_read() const;

 private:
  void open_next_file();
  bool next_line(DocumentRecord& record);
  bool whole_file(DocumentRecord& record);
  bool append_line(std::string& line);
  bool refill();
  void close_file();

  std::vector<std::filesystem::path> files_;
  size_t next_file_ = 0;
  int64_t total_bytes_ = 0;
  int64_t bytes_of_closed_files_ = 0;

  std::unique_ptr<ByteStream> stream_;  // null between files
  std::shared_ptr<const std::string> file_name_;
  bool is_json_lines_ = false;
  int64_t line_ = 0;
  int64_t documents_in_file_ = 0;
  std::vector<char> buffer_;
  size_t buffer_begin_ = 0;
  size_t buffer_end_ = 0;
};

}  // namespace smoe
