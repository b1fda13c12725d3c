// What the tests of the evaluation area share.
#pragma once

#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "smoe/data/tokenizer.h"
#include "smoe/eval/task_library.h"
#include "smoe/model/model.h"
#include "temporary_folder.h"

namespace smoe {

// One token a byte (id = byte + 3), after an optional merge: the pair "ab" and the pair " c" are one token
// each. Ids: 1 BOS, 2 EOS, 300 "ab", 301 " c".
class ByteTokenizer : public Tokenizer {
 public:
  explicit ByteTokenizer(bool has_bos = true, bool has_eos = true) : has_bos_(has_bos), has_eos_(has_eos) {
    hash_ = "bytes";
    path_ = "bytes.model";
  }
  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> ids;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text.substr(i).starts_with("ab")) {
        ids.push_back(300);
        ++i;
      } else if (text.substr(i).starts_with(" c")) {
        ids.push_back(301);
        ++i;
      } else {
        ids.push_back(static_cast<unsigned char>(text[i]) + 3);
      }
    }
    return ids;
  }
  std::vector<int32_t> encode_with_special_tokens(std::string_view text) const override {
    return encode(text);
  }
  std::string decode(const std::vector<int32_t>& ids, bool) const override {
    std::string text;
    for (const int32_t id : ids) {
      if (id == 300 || id == 301) text += id == 300 ? "ab" : " c";
      // Only ASCII, so that the text is UTF-8.
      if (id >= 3 && id < 300) text.push_back(id - 3 < 128 ? static_cast<char>(id - 3) : '?');
    }
    return text;
  }
  int64_t vocab_size() const override { return 302; }
  std::optional<int32_t> bos_id() const override { return has_bos_ ? std::optional(1) : std::nullopt; }
  std::optional<int32_t> eos_id() const override { return has_eos_ ? std::optional(2) : std::nullopt; }
  std::string token(int32_t id) const override { return "<" + std::to_string(id) + ">"; }
  std::optional<int32_t> token_id(std::string_view) const override { return std::nullopt; }

 private:
  bool has_bos_;
  bool has_eos_;
};

using testing::TemporaryFolder;

inline std::vector<int32_t> byte_ids(const std::string& text) { return ByteTokenizer().encode(text); }

inline void write_text(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

// The message of the error of type E that `call` throws; "" if it throws none.
template <class E>
std::string error_text(const std::function<void()>& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

inline std::filesystem::path source_folder() { return SMOE_SOURCE_DIR; }
inline TaskConfig shipped_task(const std::string& name) {
  return TaskLibrary(source_folder() / "configs/eval").task(name);
}

inline ModelConfig tiny_stepped_config() {
  ModelConfig config;
  config.vocab_size = 302;
  config.dim = 16;
  config.num_heads = 2;
  config.num_kv_heads = 1;
  config.head_dim = 8;
  config.num_dense_layers = 1;
  config.dense_ffn_dim = 24;
  config.num_moe_layers = 2;
  config.num_experts = 8;
  config.expert_dim = 6;
  config.budgets = {{"small", 1}, {"medium", 3}, {"large", 6}};
  config.routing.segment_length = 4;
  config.router_init_scale = 8.0;  // masks that differ from segment to segment
  return config;
}

// Weights large enough for scores, and so for mistakes, to differ clearly.
inline Model make_model(const ModelConfig& config) {
  Model model(config, at::kCPU);
  model.initialize(5);
  const at::NoGradGuard no_grad;
  for (const NamedParameter& parameter : model.parameters()) {
    at::Tensor weight = parameter.tensor;
    if (parameter.kind != ParameterKind::kNorm) weight.mul_(2.0);
    weight.set_requires_grad(false);
  }
  return model;
}

}  // namespace smoe
