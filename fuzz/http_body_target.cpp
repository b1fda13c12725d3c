// The body of a completion request and of a chat request, to the point where generation would begin.
#include "fuzz_target.h"
#include "smoe/data/chat_renderer.h"
#include "smoe/data/tokenizer.h"
#include "smoe/serve/api_error.h"
#include "smoe/serve/api_request.h"

namespace smoe::fuzz {
namespace {

// Every byte a token, BOS and EOS, and a template of plain text.
constexpr std::string_view kTemplate =
    "name: plain\nbos: never\nsystem: {prefix: '', suffix: \"\\n\"}\nuser: {prefix: 'U:', suffix: \"\\n\"}\n"
    "assistant: {prefix: 'A:', end: \"\\n\\n\"}\n";

class ByteTokenizer final : public Tokenizer {
 public:
  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> ids;
    for (const char character : text) ids.push_back(static_cast<unsigned char>(character));
    return ids;
  }
  std::vector<int32_t> encode_with_special_tokens(std::string_view text) const override {
    return encode(text);
  }
  std::string decode(const std::vector<int32_t>& ids, bool) const override {
    std::string text;
    for (const int32_t id : ids) text += static_cast<char>(id);
    return text;
  }
  int64_t vocab_size() const override { return 258; }
  std::optional<int32_t> bos_id() const override { return 256; }
  std::optional<int32_t> eos_id() const override { return 257; }
  std::string token(int32_t id) const override { return std::string(1, static_cast<char>(id)); }
  std::optional<int32_t> token_id(std::string_view) const override { return std::nullopt; }
};

ModelConfig tiny_config() {
  ModelConfig config;
  config.vocab_size = 258;
  config.dim = 8;
  config.num_heads = config.num_kv_heads = 1;
  config.head_dim = 8;
  config.num_dense_layers = config.num_moe_layers = 1;
  config.dense_ffn_dim = 8;
  config.num_experts = 2;
  config.expert_dim = 4;
  config.budgets = {{"one", 1}, {"two", 2}};
  return config;
}

ServedModel make_served() {
  auto tokenizer = std::make_unique<ByteTokenizer>();
  auto renderer = std::make_shared<const ChatRenderer>(
      config_from_yaml<ChatTemplate>(kTemplate, "template.yaml"), *tokenizer);
  return {.name = "tiny",
          .model = Model(tiny_config(), at::kCPU),
          .tokenizer = std::move(tokenizer),
          .renderer = std::move(renderer),
          .experts = nullptr,
          .bos = BosPolicy::kNever,
          .default_budget = 1,
          .segment_length = 4,
          .context_limit = 64,
          .session = {}};
}

}  // namespace

void http_body(std::string_view input) {
  static const ServedModel served = make_served();
  static const ModelCatalog catalog(served.name, served.model.config(), served.default_budget);
  for (const ApiKind kind : {ApiKind::kCompletion, ApiKind::kChat}) {
    try {
      const ApiRequest request =
          parse_api_request(kind, parse_request_body(std::string(input)), served, catalog, 32);
      const int64_t total = std::ssize(request.generation.prompt) + request.generation.max_new_tokens;
      if (total > served.context_limit) fail("a request longer than the context");
    } catch (const ApiError& error) {
      if (error.status() < 400 || error.status() >= 500) fail("a bad request is not the server's fault");
    }
  }
}

}  // namespace smoe::fuzz
