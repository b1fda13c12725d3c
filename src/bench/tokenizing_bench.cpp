#include <fmt/format.h>

#include <memory>

#include "smoe/bench/data_bench.h"
#include "smoe/data/document_reader.h"
#include "smoe/data/ordered_pipeline.h"
#include "smoe/data/tokenizer.h"

namespace smoe {
namespace {

// As in smoe-data tokenize: large enough that locks do not matter.
constexpr int64_t kChunkBytes = int64_t{1} << 18;

std::vector<std::string> read_documents(const TokenizingBenchOptions& options) {
  DocumentReader reader(options.inputs);
  std::vector<std::string> documents;
  for (DocumentRecord record; reader.next(record); record = {}) {
    documents.push_back(document_text(std::move(record), options.text_key));
  }
  return documents;
}

// Documents [begin, end) of all.
struct Chunk {
  size_t begin = 0;
  size_t end = 0;
};

int64_t count_tokens(const std::vector<std::string>& documents, const Tokenizer& tokenizer,
                     int64_t num_threads) {
  size_t next = 0;
  int64_t tokens = 0;
  OrderedPipeline<Chunk, int64_t>::run(
      num_threads,
      [&]() -> std::optional<Chunk> {
        Chunk chunk{next, next};
        for (int64_t bytes = 0; bytes < kChunkBytes && chunk.end < documents.size(); ++chunk.end) {
          bytes += std::ssize(documents[chunk.end]);
        }
        next = chunk.end;
        return chunk.end > chunk.begin ? std::optional(chunk) : std::nullopt;
      },
      [&](Chunk&& chunk) {
        int64_t count = 0;
        for (size_t i = chunk.begin; i < chunk.end; ++i) count += std::ssize(tokenizer.encode(documents[i]));
        return count;
      },
      [&](int64_t&& count) { tokens += count; });
  return tokens;
}

// One tokenizer on one number of threads.
struct Encoding {
  std::unique_ptr<Tokenizer> tokenizer;
  int64_t tokens = 0;
};

}  // namespace

SpeedReport run_tokenizing_bench(const TokenizingBenchOptions& options) {
  const std::vector<std::string> documents = read_documents(options);
  SpeedRow row;
  row.bench = "data";
  row.name = "tokenize";
  for (const std::string& document : documents) row.text_bytes += std::ssize(document);
  SpeedReport report;
  std::vector<Contestant> contestants;
  std::vector<std::shared_ptr<Encoding>> encodings;
  for (const std::filesystem::path& path : options.tokenizers) {
    for (const int64_t num_threads : options.threads) {
      row.labels = {{"tokenizer", path.string()}, {"threads", std::to_string(num_threads)}};
      report.rows.push_back(row);
      const auto encoding = std::make_shared<Encoding>();
      encodings.push_back(encoding);
      // A new tokenizer knows no words yet: text is tokenized once, not again and again.
      contestants.push_back({row.name,
                             [&documents, encoding, num_threads] {
                               encoding->tokens = count_tokens(documents, *encoding->tokenizer, num_threads);
                             },
                             [encoding, path] { encoding->tokenizer = load_tokenizer(path); }});
    }
  }
  std::vector<Samples> samples = measure_in_turns(contestants, options.repetitions);
  for (size_t i = 0; i < samples.size(); ++i) {
    report.rows[i].samples = std::move(samples[i]);
    report.rows[i].unique_tokens = encodings[i]->tokens;
  }
  return report;
}

}  // namespace smoe
