// tokenizer.json: what is accepted encodes and decodes text. The first line of the input, if it begins with
// #, is the text.
#include "fuzz_target.h"
#include "smoe/data/tokenizer.h"

namespace smoe::fuzz {
namespace {

// The pattern of a tokenizer may take exponential time, as in the library that it is made for: on a text this
// short that is still quick.
constexpr size_t kMaxTextBytes = 20;

}  // namespace

void tokenizer_json(std::string_view input) {
  std::string_view text = "Hi 12 o\xc3\xb6o\n\n  <s>";
  if (input.starts_with('#')) {
    const size_t end = std::min(input.find('\n'), input.size());
    text = input.substr(1, std::min(end - 1, kMaxTextBytes));
    input.remove_prefix(end);
  }
  const std::filesystem::path path = scratch_folder() / "tokenizer.json";
  write_scratch(path, input);
  accepts([&] {
    const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(path);
    for (const auto& ids : {tokenizer->encode(text), tokenizer->encode_with_special_tokens(text)}) {
      for (const int32_t id : ids) {
        if (id < 0 || id >= tokenizer->vocab_size()) fail("an id outside of the vocabulary");
        if (!tokenizer->token_id(tokenizer->token(id))) fail("a token without an id");
      }
      tokenizer->decode(ids, true);
    }
  });
}

}  // namespace smoe::fuzz
