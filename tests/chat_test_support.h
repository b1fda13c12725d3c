// A tokenizer with the special tokens of the chat templates, and files of messages, for tests about
// dialogues.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "smoe/core/files.h"

namespace smoe::testing {

inline constexpr int32_t kImStart = 256;
inline constexpr int32_t kImEnd = 257;
inline constexpr int32_t kBeginOfText = 258;
inline constexpr int32_t kStartHeader = 259;
inline constexpr int32_t kEndHeader = 260;
inline constexpr int32_t kEotId = 261;
inline constexpr int32_t kEndOfText = 262;

inline std::string utf8_of(int code) {
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xc0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3f))};
}

// Byte-level BPE without merges: token i is byte i; then the special tokens named above. BOS and EOS are
// <|begin_of_text|> and <|endoftext|>. `special` false leaves the chat tokens ordinary added tokens, which
// plain text yields too.
inline std::filesystem::path write_chat_tokenizer(const std::filesystem::path& folder, bool special = true) {
  nlohmann::json vocabulary = nlohmann::json::object();
  int num_hidden = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const bool is_visible = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
    vocabulary[utf8_of(is_visible ? byte : 0x100 + num_hidden++)] = byte;
  }
  nlohmann::json added = nlohmann::json::array();
  int id = kImStart;
  for (const char* spelling : {"<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|start_header_id|>",
                               "<|end_header_id|>", "<|eot_id|>", "<|endoftext|>"}) {
    added.push_back({{"id", id++},
                     {"content", spelling},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", special}});
  }
  const nlohmann::json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  const nlohmann::json model = {{"type", "BPE"},
                                {"dropout", nullptr},
                                {"unk_token", nullptr},
                                {"continuing_subword_prefix", nullptr},
                                {"end_of_word_suffix", nullptr},
                                {"fuse_unk", false},
                                {"byte_fallback", false},
                                {"vocab", vocabulary},
                                {"merges", nlohmann::json::array()}};
  const nlohmann::json document = {
      {"version", "1.0"},          {"truncation", nullptr}, {"padding", nullptr},
      {"added_tokens", added},     {"normalizer", nullptr}, {"pre_tokenizer", byte_level},
      {"post_processor", nullptr}, {"decoder", byte_level}, {"model", model}};
  std::filesystem::create_directories(folder);
  write_file_atomically(folder / "tokenizer.json", document.dump());
  write_file_atomically(folder / "special_tokens_map.json",
                        R"({"bos_token": "<|begin_of_text|>", "eos_token": "<|endoftext|>"})");
  return folder / "tokenizer.json";
}

// The ids of bytes, in a list that special ids can stand between.
class Ids {
 public:
  Ids& text(std::string_view bytes) {
    for (const char byte : bytes) ids_.push_back(static_cast<unsigned char>(byte));
    return *this;
  }
  Ids& id(int32_t id) {
    ids_.push_back(id);
    return *this;
  }
  operator std::vector<int32_t>() const { return ids_; }

 private:
  std::vector<int32_t> ids_;
};

// One line of a file of messages: user and assistant in turn, after a system message unless that is empty.
inline std::string chat_line(const std::vector<std::string>& turns, const std::string& system = "") {
  nlohmann::json messages = nlohmann::json::array();
  if (!system.empty()) messages.push_back({{"role", "system"}, {"content", system}});
  for (size_t i = 0; i < turns.size(); ++i) {
    messages.push_back({{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", turns[i]}});
  }
  return nlohmann::json{{"messages", messages}}.dump() + "\n";
}

inline std::string template_path(const std::string& name) {
  return std::string(SMOE_SOURCE_DIR) + "/configs/chat_templates/" + name + ".yaml";
}

}  // namespace smoe::testing
