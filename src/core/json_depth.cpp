#include "smoe/core/json_depth.h"

namespace smoe {

bool is_too_deep_json(std::string_view text) {
  size_t depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char character = text[i];
    if (in_string) {
      // A backslash hides the next character, which may be the quote.
      if (character == '\\') ++i;
      if (character == '"') in_string = false;
    } else if (character == '"') {
      in_string = true;
    } else if (character == '[' || character == '{') {
      if (++depth > kMaxJsonDepth) return true;
    } else if ((character == ']' || character == '}') && depth > 0) {
      --depth;
    }
  }
  return false;
}

}  // namespace smoe
