#include "smoe/data/indexed_dataset.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "smoe/core/error.h"

namespace smoe {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the format is little-endian and is mapped as it is");

constexpr std::string_view kMagic{"MMIDIDX\0\0", 9};
constexpr int64_t kHeaderBytes = 9 + 8 + 1 + 8 + 8;

// The arrays of the index start at odd offsets, so that every number has to be copied out.
template <class T>
T load(std::span<const std::byte> bytes, int64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

std::string_view foreign_type_name(uint8_t code) {
  switch (code) {
    case 1:
      return "uint8";
    case 2:
      return "int8";
    case 3:
      return "int16";
    case 5:
      return "int64";
    case 6:
      return "float64";
    case 7:
      return "float32";
    default:
      return "unknown";
  }
}

// What the header of an index says.
struct IndexHeader {
  TokenType type;
  int64_t num_sequences;
  int64_t num_borders;
};

TokenType check_token_type(uint8_t code, const std::string& name) {
  SMOE_CHECK(
      DataError,
      code == static_cast<uint8_t>(TokenType::kInt32) || code == static_cast<uint8_t>(TokenType::kUint16),
      "{}: token type code {} ({}) is not supported; allowed are 8 (uint16) and 4 (int32)", name, code,
      foreign_type_name(code));
  return static_cast<TokenType>(code);
}

// The length that the header implies must be the length of the file.
void check_index_length(const IndexHeader& header, int64_t size, const std::string& name) {
  const int64_t expected = kHeaderBytes + 12 * header.num_sequences + 8 * header.num_borders;
  SMOE_CHECK(
      DataError, size >= expected,
      "{}: the index is truncated: {} sequences and {} document borders need {} bytes, the file has {}; copy "
      "or make it again",
      name, header.num_sequences, header.num_borders, expected, size);
  SMOE_CHECK(DataError, size != expected + header.num_sequences || header.num_sequences == 0,
             "{}: a multimodal dataset (one mode byte a sequence at the end); only text datasets can be read",
             name);
  SMOE_CHECK(DataError, size == expected,
             "{}: {} unknown bytes after the index: {} sequences and {} document borders need {} bytes, the "
             "file has "
             "{}",
             name, size - expected, header.num_sequences, header.num_borders, expected, size);
}

IndexHeader read_header(std::span<const std::byte> bytes, const std::string& name) {
  const auto size = static_cast<int64_t>(bytes.size());
  SMOE_CHECK(DataError, size >= kHeaderBytes,
             "{}: {} bytes, too short for the header of an indexed dataset ({} bytes)", name, size,
             kHeaderBytes);
  const std::string_view magic(reinterpret_cast<const char*>(bytes.data()), kMagic.size());
  SMOE_CHECK(
      DataError, magic == kMagic,
      "{}: not the index of a Megatron-LM indexed dataset: it does not start with MMIDIDX; make one with "
      "smoe-data tokenize",
      name);
  const auto version = load<uint64_t>(bytes, 9);
  SMOE_CHECK(DataError, version == 1, "{}: format version {}; only version 1 can be read", name, version);
  IndexHeader header{};
  header.type = check_token_type(load<uint8_t>(bytes, 17), name);
  const auto sequences = load<uint64_t>(bytes, 18);
  const auto borders = load<uint64_t>(bytes, 26);
  // Compared before any multiplication, so that a damaged count cannot overflow.
  const auto most = static_cast<uint64_t>(size);
  SMOE_CHECK(
      DataError, sequences <= most && borders <= most,
      "{}: the index is truncated or damaged: {} sequences and {} document borders in a file of {} bytes",
      name, sequences, borders, size);
  SMOE_CHECK(DataError, borders >= 1, "{}: the index has no document borders (not even the first, 0)", name);
  header.num_sequences = static_cast<int64_t>(sequences);
  header.num_borders = static_cast<int64_t>(borders);
  check_index_length(header, size, name);
  return header;
}

// [N + 1] token offset of every sequence; checks lengths and pointers.
std::vector<int64_t> read_sequence_borders(std::span<const std::byte> bytes, const IndexHeader& header,
                                           const std::string& name) {
  const int64_t lengths_at = kHeaderBytes;
  const int64_t pointers_at = lengths_at + 4 * header.num_sequences;
  const int64_t item = token_bytes(header.type);
  std::vector<int64_t> borders(header.num_sequences + 1, 0);
  for (int64_t i = 0; i < header.num_sequences; ++i) {
    const auto length = load<int32_t>(bytes, lengths_at + 4 * i);
    SMOE_CHECK(DataError, length >= 0, "{}: sequence {} has the negative length {}", name, i, length);
    const auto pointer = load<int64_t>(bytes, pointers_at + 8 * i);
    SMOE_CHECK(DataError, pointer == borders[i] * item,
               "{}: sequence {} points to byte {}, but the sequences before it end at byte {}; sequences "
               "must lie back "
               "to back",
               name, i, pointer, borders[i] * item);
    borders[i + 1] = borders[i] + length;
  }
  return borders;
}

}  // namespace

int64_t token_bytes(TokenType type) { return type == TokenType::kUint16 ? 2 : 4; }

std::string_view token_type_name(TokenType type) { return type == TokenType::kUint16 ? "uint16" : "int32"; }

TokenType smallest_token_type(int64_t vocab_size) {
  return vocab_size < 65536 ? TokenType::kUint16 : TokenType::kInt32;
}

std::filesystem::path with_suffix(const std::filesystem::path& prefix, std::string_view suffix) {
  return prefix.string() + std::string(suffix);
}

IndexedDataset::IndexedDataset(const std::filesystem::path& prefix)
    : prefix_(prefix), tokens_(with_suffix(prefix, ".bin")) {
  read_index(MappedFile(with_suffix(prefix, ".idx")));
  const auto found = static_cast<int64_t>(tokens_.bytes().size());
  const int64_t expected = num_tokens() * token_bytes(token_type_);
  SMOE_CHECK(DataError, found >= expected,
             "{}: truncated: the index names {} tokens of {} ({} bytes), the file has {} bytes; copy or make "
             "it again",
             tokens_.path().string(), num_tokens(), token_type_name(token_type_), expected, found);
  SMOE_CHECK(
      DataError, found == expected,
      "{}: {} bytes more than the index names ({} tokens of {}, {} bytes); do .bin and .idx belong together?",
      tokens_.path().string(), found - expected, num_tokens(), token_type_name(token_type_), expected);
}

void IndexedDataset::read_index(const MappedFile& index) {
  const std::string name = index.path().string();
  const IndexHeader header = read_header(index.bytes(), name);
  token_type_ = header.type;
  num_sequences_ = header.num_sequences;
  const std::vector<int64_t> sequence_borders = read_sequence_borders(index.bytes(), header, name);
  const int64_t documents_at = kHeaderBytes + 12 * header.num_sequences;
  document_borders_.resize(header.num_borders);
  int64_t previous = 0;
  for (int64_t i = 0; i < header.num_borders; ++i) {
    const auto border = load<int64_t>(index.bytes(), documents_at + 8 * i);
    SMOE_CHECK(DataError, i > 0 || border == 0, "{}: the first document border is {}, not 0", name, border);
    SMOE_CHECK(DataError, border >= previous, "{}: document border {} is {}, before border {} ({})", name, i,
               border, i - 1, previous);
    SMOE_CHECK(DataError, border <= num_sequences_,
               "{}: document border {} is {}, but there are {} sequences", name, i, border, num_sequences_);
    document_borders_[i] = sequence_borders[border];
    previous = border;
  }
  SMOE_CHECK(DataError, previous == num_sequences_,
             "{}: the last document ends at sequence {}, but there are {} sequences", name, previous,
             num_sequences_);
}

void IndexedDataset::read(int64_t begin, int64_t count, int64_t* ids) const {
  SMOE_ASSERT(begin >= 0 && count >= 0 && begin + count <= num_tokens());
  const std::byte* source = tokens_.bytes().data() + begin * token_bytes(token_type_);
  // The map is page-aligned and tokens lie back to back, so that both types are aligned.
  if (token_type_ == TokenType::kUint16) {
    const auto* narrow = reinterpret_cast<const uint16_t*>(source);
    for (int64_t i = 0; i < count; ++i) {
      ids[i] = narrow[i];
    }
  } else {
    const auto* wide = reinterpret_cast<const int32_t*>(source);
    for (int64_t i = 0; i < count; ++i) {
      ids[i] = wide[i];
    }
  }
}

std::vector<int32_t> IndexedDataset::document(int64_t index) const {
  SMOE_ASSERT(index >= 0 && index < num_documents());
  const int64_t begin = document_borders_[index];
  std::vector<int64_t> wide(document_borders_[index + 1] - begin);
  read(begin, static_cast<int64_t>(wide.size()), wide.data());
  std::vector<int32_t> ids(wide.size());
  std::transform(wide.begin(), wide.end(), ids.begin(), [](int64_t id) { return static_cast<int32_t>(id); });
  return ids;
}

}  // namespace smoe
