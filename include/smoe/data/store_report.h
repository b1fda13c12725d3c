// What a token store holds, for people.
#pragma once

#include <cstdint>
#include <string>

#include "smoe/data/token_store.h"
#include "smoe/data/tokenizer.h"

namespace smoe {

struct StoreReportOptions {
  int64_t documents = 2;                 // first documents shown
  int64_t tokens_per_document = 40;      // of each, at most
  const Tokenizer* tokenizer = nullptr;  // shows text; must be the store's own (DataError otherwise)
};

// Header, counts, lengths and the first documents as ids (and text).
std::string store_report(const TokenStore& store, const StoreReportOptions& options);

}  // namespace smoe
