#include "smoe/data/tokenizer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "byte_level_bpe_tokenizer.h"
#include "sentencepiece_tokenizer.h"
#include "smoe/core/error.h"

namespace smoe {
namespace {

// The tokenizer file of a folder: tokenizer.json or the only *.model.
std::filesystem::path find_tokenizer_file(const std::filesystem::path& folder) {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const auto& path = entry.path();
    if (path.filename() == "tokenizer.json" || path.extension() == ".model") {
      found.push_back(path.filename().string());
    }
  }
  std::sort(found.begin(), found.end());
  SMOE_CHECK(DataError, !found.empty(), "{}: the folder holds no tokenizer.json and no *.model",
             folder.string());
  SMOE_CHECK(DataError, found.size() == 1,
             "{}: the folder holds several tokenizers ({}); give the path of the one that is meant",
             folder.string(), fmt::join(found, ", "));
  return folder / found.front();
}

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path) {
  SMOE_CHECK(DataError, std::filesystem::exists(path), "{}: there is no such tokenizer file or folder",
             path.string());
  const std::filesystem::path file = std::filesystem::is_directory(path) ? find_tokenizer_file(path) : path;
  if (file.extension() == ".json") {
    return std::make_unique<ByteLevelBpeTokenizer>(file);
  }
  SMOE_CHECK(
      DataError, file.extension() == ".model",
      "{}: the kind of a tokenizer is told by its extension: .model (SentencePiece) or .json (Hugging Face "
      "tokenizer.json)",
      file.string());
  return std::make_unique<SentencePieceTokenizer>(file);
}

}  // namespace smoe
