#include "smoe/data/tokenize.h"

#include <chrono>
#include <optional>
#include <utility>

#include "smoe/core/error.h"
#include "smoe/core/progress.h"
#include "smoe/data/document_reader.h"
#include "smoe/data/indexed_dataset_writer.h"
#include "smoe/data/ordered_pipeline.h"

namespace smoe {
namespace {

// Large enough that locks do not matter, small enough that the last chunk does not keep one worker busy for
// long.
constexpr int64_t kChunkBytes = int64_t{1} << 18;

struct TextChunk {
  std::vector<DocumentRecord> records;
  int64_t file_bytes = 0;  // read from disk for it, for the progress bar
};

struct TokenChunk {
  std::vector<std::vector<int32_t>> documents;
  int64_t text_bytes = 0;
  int64_t empty_documents = 0;
  int64_t file_bytes = 0;
};

std::optional<TextChunk> read_chunk(DocumentReader& reader) {
  TextChunk chunk;
  const int64_t before = reader.bytes_read();
  int64_t bytes = 0;
  DocumentRecord record;
  while (bytes < kChunkBytes && reader.next(record)) {
    bytes += static_cast<int64_t>(record.bytes.size());
    chunk.records.push_back(std::move(record));
    record = {};
  }
  chunk.file_bytes = reader.bytes_read() - before;
  return chunk.records.empty() ? std::nullopt : std::optional(std::move(chunk));
}

TokenChunk encode_chunk(TextChunk&& chunk, const Tokenizer& tokenizer, const std::string& text_key,
                        int32_t eos) {
  TokenChunk result;
  result.file_bytes = chunk.file_bytes;
  for (DocumentRecord& record : chunk.records) {
    const std::string text = document_text(std::move(record), text_key);
    if (text.empty()) {
      ++result.empty_documents;
      continue;
    }
    std::vector<int32_t> ids = tokenizer.encode(text);
    ids.push_back(eos);
    result.text_bytes += static_cast<int64_t>(text.size());
    result.documents.push_back(std::move(ids));
  }
  return result;
}

void check_options(const TokenizeOptions& options, const Tokenizer& tokenizer) {
  SMOE_CHECK(ConfigError, options.num_workers >= 1, "workers: {} is not allowed; at least 1",
             options.num_workers);
  SMOE_CHECK(DataError, tokenizer.eos_id().has_value(),
             "{}: the tokenizer has no end-of-text token, which must end every document",
             tokenizer.path().string());
  for (const char* suffix : {".bin", ".idx", ".json"}) {
    const std::filesystem::path path = with_suffix(options.output, suffix);
    SMOE_CHECK(DataError, options.overwrite || !std::filesystem::exists(path),
               "{}: exists already; remove it, name another output or pass --overwrite", path.string());
  }
}

TokenStoreInfo describe(const IndexedDatasetWriter& writer, const Tokenizer& tokenizer, TokenType type,
                        int64_t text_bytes) {
  TokenStoreInfo info;
  info.tokenizer_hash = tokenizer.hash();
  info.vocab_size = tokenizer.vocab_size();
  info.eos_id = tokenizer.eos_id();
  info.token_type = token_type_name(type);
  info.documents = writer.num_documents();
  info.tokens = writer.num_tokens();
  info.text_bytes = text_bytes;
  info.bin_bytes = writer.bin_bytes();
  info.idx_bytes = writer.idx_bytes();
  info.bin_sha256 = writer.bin_sha256();
  info.idx_sha256 = writer.idx_sha256();
  return info;
}

}  // namespace

TokenizeResult tokenize_files(const TokenizeOptions& options, const Tokenizer& tokenizer) {
  check_options(options, tokenizer);
  const auto start = std::chrono::steady_clock::now();
  const int32_t eos = *tokenizer.eos_id();
  const TokenType type = smallest_token_type(tokenizer.vocab_size());
  DocumentReader reader(options.inputs);
  IndexedDatasetWriter writer(options.output, type);
  TokenizeResult result;
  int64_t text_bytes = 0;
  {
    ProgressBar progress("tokenizing", reader.total_bytes(), "bytes");
    OrderedPipeline<TextChunk, TokenChunk>::run(
        options.num_workers, [&] { return read_chunk(reader); },
        [&](TextChunk&& chunk) { return encode_chunk(std::move(chunk), tokenizer, options.text_key, eos); },
        [&](TokenChunk&& chunk) {
          for (const std::vector<int32_t>& document : chunk.documents) {
            writer.add_document(document);
          }
          text_bytes += chunk.text_bytes;
          result.empty_documents += chunk.empty_documents;
          progress.advance(chunk.file_bytes);
        });
  }
  SMOE_CHECK(DataError, writer.num_documents() > 0, "{}: none of the {} documents of the input has text",
             options.inputs.front().string(), result.empty_documents);
  writer.finish();
  // The JSON marks a complete store: the old one must be gone before the first new file is in place.
  std::filesystem::remove(with_suffix(options.output, ".json"));
  writer.commit();
  result.info = describe(writer, tokenizer, type, text_bytes);
  write_token_store_info(options.output, result.info);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace smoe
