#include "smoe/data/store_report.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "smoe/core/error.h"
#include "smoe/core/progress.h"
#include "smoe/core/table.h"

namespace smoe {
namespace {

// Document lengths, sorted.
std::vector<int64_t> sorted_lengths(const IndexedDataset& dataset) {
  std::vector<int64_t> lengths;
  const std::vector<int64_t>& borders = dataset.document_borders();
  for (size_t d = 0; d + 1 < borders.size(); ++d) {
    lengths.push_back(borders[d + 1] - borders[d]);
  }
  std::sort(lengths.begin(), lengths.end());
  return lengths;
}

std::string overview(const TokenStore& store) {
  const TokenStoreInfo& info = store.info;
  const std::vector<int64_t> lengths = sorted_lengths(store.dataset);
  Table table({"token store", store.dataset.prefix().string()});
  table.add_row({"documents", fmt::format("{}", info.documents)});
  table.add_row({"sequences", fmt::format("{}", store.dataset.num_sequences())});
  table.add_row({"tokens", fmt::format("{}", info.tokens)});
  if (!lengths.empty()) {
    table.add_row({"tokens a document", fmt::format("min {}, median {}, max {}", lengths.front(),
                                                    lengths[lengths.size() / 2], lengths.back())});
  }
  table.add_row({"text", format_bytes(static_cast<double>(info.text_bytes))});
  table.add_row({"bytes per token", fmt::format("{:.3f}", info.bytes_per_token())});
  table.add_separator();
  table.add_row({"token type", info.token_type});
  table.add_row({"vocabulary", fmt::format("{}", info.vocab_size)});
  table.add_row({"EOS id", info.eos_id ? fmt::format("{}", *info.eos_id) : "none"});
  table.add_row({"tokenizer SHA-256", info.tokenizer_hash});
  table.add_row({".bin SHA-256", info.bin_sha256});
  return table.to_terminal();
}

std::string document_lines(const TokenStore& store, const StoreReportOptions& options, int64_t index) {
  std::vector<int32_t> ids = store.dataset.document(index);
  const auto total = static_cast<int64_t>(ids.size());
  const bool cut = total > options.tokens_per_document;
  ids.resize(std::min(total, options.tokens_per_document));
  const char* more = cut ? " ..." : "";
  std::string text =
      fmt::format("\ndocument {} ({} tokens)\n  ids:  {}{}\n", index, total, fmt::join(ids, " "), more);
  if (options.tokenizer != nullptr) {
    // Written as JSON writes it, so that line breaks and control characters stay visible on one line.
    text += fmt::format("  text: {}{}\n",
                        nlohmann::json(options.tokenizer->decode(ids, /*keep_special_tokens=*/true)).dump(),
                        more);
  }
  return text;
}

}  // namespace

std::string store_report(const TokenStore& store, const StoreReportOptions& options) {
  if (options.tokenizer != nullptr) {
    check_store_fits(store, options.tokenizer->hash(), options.tokenizer->vocab_size());
  }
  std::string report = overview(store);
  for (int64_t index = 0; index < std::min(options.documents, store.info.documents); ++index) {
    report += document_lines(store, options, index);
  }
  return report;
}

}  // namespace smoe
