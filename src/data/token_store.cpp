#include "smoe/data/token_store.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/core/json.h"
#include "smoe/core/progress.h"

namespace smoe {
namespace {

constexpr const char* kFormat = "smoe-token-store";
constexpr int64_t kVersion = 1;

template <class T>
T get(const nlohmann::json& json, const char* key, const std::string& name) {
  SMOE_CHECK(DataError, json.contains(key), "{}: the key \"{}\" is missing; make the token store again", name,
             key);
  try {
    return json.at(key).get<T>();
  } catch (const nlohmann::json::exception&) {
    throw DataError(
        fmt::format("{}: \"{}\" has the wrong type (found {})", name, key, json.at(key).type_name()));
  }
}

nlohmann::json parse_info(const std::filesystem::path& path) {
  SMOE_CHECK(
      DataError, std::filesystem::exists(path),
      "{}: not found; a token store needs .bin, .idx and .json. Make it with smoe-data tokenize, or adopt a "
      "dataset made elsewhere with smoe-data adopt",
      path.string());
  nlohmann::json json = read_json_file(path);
  SMOE_CHECK(DataError, json.is_object(), "{}: a JSON {} instead of an object; make the token store again",
             path.string(), json.type_name());
  return json;
}

void check_equal(const TokenStore& store, const char* what, int64_t in_json, int64_t in_files) {
  SMOE_CHECK(DataError, in_json == in_files,
             "{}: {} {} are recorded, but .bin and .idx hold {}; the files do not belong together",
             with_suffix(store.dataset.prefix(), ".json").string(), in_json, what, in_files);
}

void check_ids(const IndexedDataset& dataset, int64_t vocab_size) {
  constexpr int64_t kChunk = int64_t{1} << 20;
  const std::string bin = with_suffix(dataset.prefix(), ".bin").string();
  ProgressBar progress("checking ids", dataset.num_tokens(), "tokens");
  std::vector<int64_t> ids(kChunk);
  for (int64_t begin = 0; begin < dataset.num_tokens(); begin += kChunk) {
    const int64_t count = std::min(kChunk, dataset.num_tokens() - begin);
    dataset.read(begin, count, ids.data());
    for (int64_t i = 0; i < count; ++i) {
      SMOE_CHECK(DataError, ids[i] >= 0 && ids[i] < vocab_size,
                 "{}: token {} is id {}, outside the vocabulary [0, {}); was it made with another tokenizer?",
                 bin, begin + i, ids[i], vocab_size);
    }
    progress.advance(count);
  }
}

int64_t file_bytes(const std::filesystem::path& path) {
  return static_cast<int64_t>(std::filesystem::file_size(path));
}

int64_t decoded_bytes(const IndexedDataset& dataset, const Tokenizer& tokenizer) {
  ProgressBar progress("decoding", dataset.num_documents(), "documents");
  int64_t bytes = 0;
  for (int64_t index = 0; index < dataset.num_documents(); ++index) {
    std::vector<int32_t> ids = dataset.document(index);
    bytes += static_cast<int64_t>(tokenizer.decode(ids, /*keep_special_tokens=*/false).size());
    progress.advance();
  }
  return bytes;
}

}  // namespace

void write_token_store_info(const std::filesystem::path& prefix, const TokenStoreInfo& info) {
  nlohmann::ordered_json json;
  json["format"] = kFormat;
  json["version"] = kVersion;
  json["tokenizer_hash"] = info.tokenizer_hash;
  json["vocab_size"] = info.vocab_size;
  json["eos_id"] = info.eos_id ? nlohmann::ordered_json(*info.eos_id) : nlohmann::ordered_json();
  json["token_type"] = info.token_type;
  json["documents"] = info.documents;
  json["tokens"] = info.tokens;
  json["text_bytes"] = info.text_bytes;
  json["bin_bytes"] = info.bin_bytes;
  json["idx_bytes"] = info.idx_bytes;
  json["bin_sha256"] = info.bin_sha256;
  json["idx_sha256"] = info.idx_sha256;
  write_file_atomically(with_suffix(prefix, ".json"), json.dump(2) + "\n");
}

TokenStoreInfo read_token_store_info(const std::filesystem::path& prefix) {
  const std::filesystem::path path = with_suffix(prefix, ".json");
  const std::string name = path.string();
  const nlohmann::json json = parse_info(path);
  const auto format = get<std::string>(json, "format", name);
  SMOE_CHECK(DataError, format == kFormat, "{}: format \"{}\" instead of \"{}\"", name, format, kFormat);
  const auto version = get<int64_t>(json, "version", name);
  SMOE_CHECK(DataError, version == kVersion, "{}: version {}; only version {} can be read", name, version,
             kVersion);
  TokenStoreInfo info;
  info.tokenizer_hash = get<std::string>(json, "tokenizer_hash", name);
  info.vocab_size = get<int64_t>(json, "vocab_size", name);
  if (!json.contains("eos_id") || !json.at("eos_id").is_null()) {
    info.eos_id = get<int32_t>(json, "eos_id", name);
  }
  info.token_type = get<std::string>(json, "token_type", name);
  info.documents = get<int64_t>(json, "documents", name);
  info.tokens = get<int64_t>(json, "tokens", name);
  info.text_bytes = get<int64_t>(json, "text_bytes", name);
  info.bin_bytes = get<int64_t>(json, "bin_bytes", name);
  info.idx_bytes = get<int64_t>(json, "idx_bytes", name);
  info.bin_sha256 = get<std::string>(json, "bin_sha256", name);
  info.idx_sha256 = get<std::string>(json, "idx_sha256", name);
  return info;
}

TokenStore::TokenStore(const std::filesystem::path& prefix)
    : dataset(prefix), info(read_token_store_info(prefix)) {
  check_equal(*this, "documents", info.documents, dataset.num_documents());
  check_equal(*this, "tokens", info.tokens, dataset.num_tokens());
  check_equal(*this, "bytes of .bin", info.bin_bytes, file_bytes(with_suffix(prefix, ".bin")));
  check_equal(*this, "bytes of .idx", info.idx_bytes, file_bytes(with_suffix(prefix, ".idx")));
  SMOE_CHECK(DataError, info.token_type == token_type_name(dataset.token_type()),
             "{}: token_type {} is recorded, but the index says {}", with_suffix(prefix, ".json").string(),
             info.token_type, token_type_name(dataset.token_type()));
}

void check_store_fits(const TokenStore& store, const std::string& tokenizer_hash, int64_t vocab_size) {
  const std::string name = with_suffix(store.dataset.prefix(), ".json").string();
  SMOE_CHECK(DataError, store.info.tokenizer_hash == tokenizer_hash,
             "{}: made with another tokenizer (SHA-256 {:.12}..., this run has {:.12}...); name that "
             "tokenizer in the "
             "config, or tokenize the text again",
             name, store.info.tokenizer_hash, tokenizer_hash);
  SMOE_CHECK(DataError, store.info.vocab_size <= vocab_size,
             "{}: vocab_size {} is larger than the {} entries of the model; raise the model's vocab_size",
             name, store.info.vocab_size, vocab_size);
}

void verify_token_store(const TokenStore& store) {
  check_ids(store.dataset, store.info.vocab_size);
  for (const auto& [suffix, expected] :
       {std::pair{".bin", store.info.bin_sha256}, std::pair{".idx", store.info.idx_sha256}}) {
    const std::filesystem::path path = with_suffix(store.dataset.prefix(), suffix);
    const std::string found = sha256_of_file(path);
    SMOE_CHECK(
        DataError, found == expected,
        "{}: the content has changed: SHA-256 {:.12}..., recorded {:.12}...; make the token store again",
        path.string(), found, expected);
  }
}

TokenStoreInfo adopt_indexed_dataset(const std::filesystem::path& prefix, const Tokenizer& tokenizer) {
  const std::filesystem::path json = with_suffix(prefix, ".json");
  SMOE_CHECK(DataError, !std::filesystem::exists(json),
             "{}: exists already; remove it to adopt the dataset again", json.string());
  const IndexedDataset dataset(prefix);
  check_ids(dataset, tokenizer.vocab_size());
  TokenStoreInfo info;
  info.tokenizer_hash = tokenizer.hash();
  info.vocab_size = tokenizer.vocab_size();
  info.eos_id = tokenizer.eos_id();
  info.token_type = token_type_name(dataset.token_type());
  info.documents = dataset.num_documents();
  info.tokens = dataset.num_tokens();
  info.text_bytes = decoded_bytes(dataset, tokenizer);
  info.bin_bytes = file_bytes(with_suffix(prefix, ".bin"));
  info.idx_bytes = file_bytes(with_suffix(prefix, ".idx"));
  info.bin_sha256 = sha256_of_file(with_suffix(prefix, ".bin"));
  info.idx_sha256 = sha256_of_file(with_suffix(prefix, ".idx"));
  write_token_store_info(prefix, info);
  return info;
}

}  // namespace smoe
