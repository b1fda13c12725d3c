#include "smoe/data/utf8_validity.h"

#include <cstring>

namespace smoe {
namespace {

// What may follow a lead byte: how many bytes, and the range of the first of them. That range alone excludes
// overlong forms, surrogates and values above U+10FFFF.
struct Sequence {
  int following;
  unsigned char second_low;
  unsigned char second_high;
};

Sequence sequence_of(unsigned char lead) {
  if (lead >= 0xC2 && lead <= 0xDF) return {1, 0x80, 0xBF};
  if (lead == 0xE0) return {2, 0xA0, 0xBF};
  if (lead == 0xED) return {2, 0x80, 0x9F};
  if (lead >= 0xE1 && lead <= 0xEF) return {2, 0x80, 0xBF};
  if (lead == 0xF0) return {3, 0x90, 0xBF};
  if (lead >= 0xF1 && lead <= 0xF3) return {3, 0x80, 0xBF};
  if (lead == 0xF4) return {3, 0x80, 0x8F};
  return {0, 0, 0};
}

bool is_valid_sequence(const unsigned char* bytes, size_t available, const Sequence& sequence) {
  if (sequence.following == 0 || available <= static_cast<size_t>(sequence.following)) return false;
  if (bytes[1] < sequence.second_low || bytes[1] > sequence.second_high) return false;
  for (int i = 2; i <= sequence.following; ++i) {
    if ((bytes[i] & 0xC0) != 0x80) return false;
  }
  return true;
}

}  // namespace

std::optional<int64_t> first_invalid_utf8(std::string_view text) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  size_t i = 0;
  while (i < text.size()) {
    uint64_t eight = 0;  // most text is ASCII: eight bytes at a time
    if (i + 8 <= text.size()) {
      std::memcpy(&eight, bytes + i, 8);
      if ((eight & 0x8080808080808080ULL) == 0) {
        i += 8;
        continue;
      }
    }
    if (bytes[i] < 0x80) {
      ++i;
      continue;
    }
    const Sequence sequence = sequence_of(bytes[i]);
    if (!is_valid_sequence(bytes + i, text.size() - i, sequence)) {
      return static_cast<int64_t>(i);
    }
    i += static_cast<size_t>(sequence.following) + 1;
  }
  return std::nullopt;
}

}  // namespace smoe
