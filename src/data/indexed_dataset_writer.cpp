#include "smoe/data/indexed_dataset_writer.h"

#include <limits>
#include <string_view>

#include "smoe/core/error.h"

namespace smoe {
namespace {

template <class T>
std::string_view as_bytes(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(T)};
}

template <class T>
std::string_view as_bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::filesystem::path make_parent(const std::filesystem::path& prefix) {
  if (prefix.has_parent_path()) {
    std::error_code error;
    std::filesystem::create_directories(prefix.parent_path(), error);
    SMOE_CHECK(DataError, !error, "{}: cannot make this folder: {}", prefix.parent_path().string(),
               error.message());
  }
  return prefix;
}

}  // namespace

IndexedDatasetWriter::IndexedDatasetWriter(const std::filesystem::path& prefix, TokenType type)
    : type_(type), bin_(with_suffix(make_parent(prefix), ".bin")), idx_(with_suffix(prefix, ".idx")) {}

void IndexedDatasetWriter::add_document(std::span<const int32_t> ids) {
  SMOE_CHECK(DataError, ids.size() <= std::numeric_limits<int32_t>::max(),
             "document {} has {} tokens; the format holds at most 2^31 - 1 in one document: split it",
             num_documents(), ids.size());
  const int32_t limit = type_ == TokenType::kUint16 ? 65535 : std::numeric_limits<int32_t>::max();
  for (const int32_t id : ids) {
    SMOE_CHECK(DataError, id >= 0 && id <= limit, "document {}: token id {} does not fit {}", num_documents(),
               id, token_type_name(type_));
  }
  if (type_ == TokenType::kUint16) {
    narrow_.resize(ids.size());
    for (size_t i = 0; i < ids.size(); ++i) {
      narrow_[i] = static_cast<uint16_t>(ids[i]);
    }
    bin_.write(as_bytes(narrow_));
  } else {
    bin_.write({reinterpret_cast<const char*>(ids.data()), ids.size_bytes()});
  }
  lengths_.push_back(static_cast<int32_t>(ids.size()));
  num_tokens_ += static_cast<int64_t>(ids.size());
}

void IndexedDatasetWriter::finish() {
  bin_.finish();
  idx_.write({"MMIDIDX\0\0", 9});
  idx_.write(as_bytes(uint64_t{1}));
  idx_.write(as_bytes(static_cast<uint8_t>(type_)));
  idx_.write(as_bytes(static_cast<uint64_t>(lengths_.size())));
  idx_.write(as_bytes(static_cast<uint64_t>(lengths_.size() + 1)));
  idx_.write(as_bytes(lengths_));
  int64_t pointer = 0;
  for (const int32_t length : lengths_) {
    idx_.write(as_bytes(pointer));
    pointer += length * token_bytes(type_);
  }
  for (int64_t border = 0; border <= num_documents(); ++border) {
    idx_.write(as_bytes(border));
  }
  idx_.finish();
  bin_sha256_ = sha256_of_file(bin_.temporary_path());
  idx_sha256_ = sha256_of_file(idx_.temporary_path());
}

void IndexedDatasetWriter::commit() {
  bin_.commit();
  idx_.commit();
}

}  // namespace smoe
