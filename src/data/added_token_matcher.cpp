#include "added_token_matcher.h"

#include <unicode/uchar.h>

#include <algorithm>

#include "smoe/core/error.h"
#include "utf8.h"

namespace smoe {
namespace {

// \w as Unicode Technical Standard 18 defines it.
bool is_word_character(char32_t code_point) {
  const auto value = static_cast<UChar32>(code_point);
  return u_hasBinaryProperty(value, UCHAR_ALPHABETIC) || u_hasBinaryProperty(value, UCHAR_JOIN_CONTROL) ||
         (U_GET_GC_MASK(value) & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) != 0;
}

bool touches_word(std::string_view text, size_t begin, size_t end) {
  if (begin > 0) {
    size_t before = begin;
    if (is_word_character(previous_code_point(text, before))) {
      return true;
    }
  }
  if (end < text.size()) {
    size_t after = end;
    return is_word_character(next_code_point(text, after));
  }
  return false;
}

size_t skip_space_left(std::string_view text, size_t position, size_t limit) {
  while (position > limit) {
    size_t start = position;
    if (!u_isUWhiteSpace(static_cast<UChar32>(previous_code_point(text, start)))) {
      break;
    }
    position = start;
  }
  return position;
}

size_t skip_space_right(std::string_view text, size_t position) {
  while (position < text.size()) {
    size_t end = position;
    if (!u_isUWhiteSpace(static_cast<UChar32>(next_code_point(text, end)))) {
      break;
    }
    position = end;
  }
  return position;
}

}  // namespace

void AddedTokenMatcher::add(AddedToken token) {
  SMOE_ASSERT(!token.content.empty());
  uint32_t node = 0;
  for (const char character : token.content) {
    const auto byte = static_cast<uint8_t>(character);
    const auto& children = nodes_[node].children;
    const auto child =
        std::find_if(children.begin(), children.end(), [&](const Child& c) { return c.byte == byte; });
    if (child != children.end()) {
      node = child->node;
    } else {
      const auto created = static_cast<uint32_t>(nodes_.size());
      nodes_[node].children.push_back({byte, created});
      nodes_.emplace_back();
      node = created;
    }
  }
  starts_token_[static_cast<uint8_t>(token.content.front())] = true;
  nodes_[node].token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(std::move(token));
}

const AddedToken* AddedTokenMatcher::longest_at(std::string_view text, size_t position) const {
  const AddedToken* longest = nullptr;
  uint32_t node = 0;
  for (; position < text.size(); ++position) {
    const auto byte = static_cast<uint8_t>(text[position]);
    const auto& children = nodes_[node].children;
    const auto child =
        std::find_if(children.begin(), children.end(), [&](const Child& c) { return c.byte == byte; });
    if (child == children.end()) {
      break;
    }
    node = child->node;
    if (nodes_[node].token >= 0) {
      longest = &tokens_[static_cast<size_t>(nodes_[node].token)];
    }
  }
  return longest;
}

std::vector<TextPart> AddedTokenMatcher::split(std::string_view text, SpecialTokens mode) const {
  std::vector<TextPart> parts;
  size_t done = 0;
  for (size_t position = 0; position < text.size();) {
    const AddedToken* token = nullptr;
    if (starts_token_[static_cast<uint8_t>(text[position])]) {
      token = longest_at(text, position);
    }
    if (token == nullptr) {
      ++position;
      continue;
    }
    size_t begin = position;
    size_t end = begin + token->content.size();
    // A match that does not count is passed over as a whole: nothing inside it is looked at again.
    position = end;
    if ((token->special && mode == SpecialTokens::kAsText) ||
        (token->single_word && touches_word(text, begin, end))) {
      continue;
    }
    begin = token->lstrip ? skip_space_left(text, begin, done) : std::max(begin, done);
    end = token->rstrip ? skip_space_right(text, end) : end;
    if (begin > done) {
      parts.push_back({text.substr(done, begin - done), -1});
    }
    parts.push_back({text.substr(begin, end - begin), token->id});
    done = end;
  }
  if (done < text.size()) {
    parts.push_back({text.substr(done), -1});
  }
  return parts;
}

}  // namespace smoe
