// Text files to a token store.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "smoe/data/token_store.h"
#include "smoe/data/tokenizer.h"

namespace smoe {

struct TokenizeOptions {
  std::vector<std::filesystem::path> inputs;  // see document_reader.h
  std::filesystem::path output;               // prefix of the token store
  std::string text_key = "text";
  int64_t num_workers = 1;
  bool overwrite = false;  // false: an existing store is an error
};

struct TokenizeResult {
  TokenStoreInfo info;
  int64_t empty_documents = 0;  // had no text and were left out
  double seconds = 0.0;
};

// Encodes every document, appends EOS to each and writes the store. The files are byte for byte the same for
// any number of workers. Throws DataError for bad input (the first in file order) and leaves no store then.
TokenizeResult tokenize_files(const TokenizeOptions& options, const Tokenizer& tokenizer);

}  // namespace smoe
