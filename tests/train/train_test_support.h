// Tiny models, random token stores and whole run configs for the tests of the training area.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "smoe/core/files.h"
#include "smoe/core/random.h"
#include "smoe/data/batch.h"
#include "smoe/data/indexed_dataset_writer.h"
#include "smoe/data/token_store.h"
#include "smoe/model/model.h"
#include "smoe/train/train_config.h"
#include "temporary_folder.h"

namespace smoe::testing {

// UTF-8 of a code point below 0x800.
inline std::string utf8(int code) {
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xc0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3f))};
}

// Byte-level BPE without merges: one token a byte, spelled as GPT-2 spells bytes, and one special token.
inline std::filesystem::path write_tokenizer(const std::filesystem::path& folder) {
  nlohmann::json vocabulary = nlohmann::json::object();
  int num_hidden = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const bool is_visible = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
    vocabulary[utf8(is_visible ? byte : 0x100 + num_hidden++)] = byte;
  }
  const nlohmann::json end = {{"id", 256},       {"content", "<|end|>"}, {"single_word", false},
                              {"lstrip", false}, {"rstrip", false},      {"normalized", false},
                              {"special", true}};
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
      {"added_tokens", {end}},     {"normalizer", nullptr}, {"pre_tokenizer", byte_level},
      {"post_processor", nullptr}, {"decoder", byte_level}, {"model", model}};
  write_file_atomically(folder / "tokenizer.json", document.dump());
  return folder / "tokenizer.json";
}

// Documents of random length whose tokens follow a noisy cycle, so that there is something to learn.
inline std::string write_store(const std::filesystem::path& prefix, const std::string& tokenizer_hash,
                               int64_t num_tokens, uint64_t seed) {
  SplitMix64 random(seed);
  IndexedDatasetWriter writer(prefix, TokenType::kUint16);
  while (writer.num_tokens() < num_tokens) {
    std::vector<int32_t> document;
    const uint64_t length = 10 + random.below(50);
    uint64_t token = random.below(64);
    for (uint64_t i = 0; i < length; ++i) {
      token = random.below(4) == 0 ? random.below(64) : (token * 5 + 1) % 64;
      document.push_back(static_cast<int32_t>(token));
    }
    document.push_back(63);
    writer.add_document(document);
  }
  writer.finish();
  TokenStoreInfo info;
  info.tokenizer_hash = tokenizer_hash;
  info.vocab_size = 257;
  info.eos_id = 63;
  info.token_type = "uint16";
  info.documents = writer.num_documents();
  info.tokens = writer.num_tokens();
  info.text_bytes = 3 * writer.num_tokens();
  info.bin_bytes = writer.bin_bytes();
  info.idx_bytes = writer.idx_bytes();
  info.bin_sha256 = writer.bin_sha256();
  info.idx_sha256 = writer.idx_sha256();
  writer.commit();
  write_token_store_info(prefix, info);
  return prefix.string();
}

inline ModelConfig tiny_model_config(Architecture architecture = Architecture::kSteppedMoe) {
  ModelConfig config;
  config.architecture = architecture;
  config.vocab_size = 260;
  config.dim = 32;
  config.num_heads = 2;
  config.num_kv_heads = 1;
  config.head_dim = 16;
  config.num_dense_layers = 1;
  config.dense_ffn_dim = 48;
  config.num_moe_layers = architecture == Architecture::kDense ? 0 : 2;
  config.num_experts = 8;
  config.expert_dim = 12;
  config.budgets = {{"1B", 1}, {"2B", 3}, {"3B", 5}};
  config.routing.segment_length = 4;
  return config;
}

// A run of a few steps over two training sources and one for validation, all inside `folder`. One pass over
// the larger source takes less than `steps` steps.
inline TrainConfig tiny_run(const std::filesystem::path& folder,
                            Architecture architecture = Architecture::kSteppedMoe) {
  TrainConfig config;
  config.model = tiny_model_config(architecture);
  const std::filesystem::path tokenizer = write_tokenizer(folder);
  const std::string hash = sha256_of_file(tokenizer);
  config.data.tokenizer = tokenizer.string();
  if (!std::filesystem::exists(folder / "one.json")) {
    write_store(folder / "one", hash, 400, 1);
    write_store(folder / "two", hash, 300, 2);
    write_store(folder / "held", hash, 200, 3);
  }
  config.data.train = {{"one", (folder / "one").string(), 2.0}, {"two", (folder / "two").string(), 1.0}};
  config.data.validation = {{"held", (folder / "held").string(), 1.0}};
  config.data.sequence_length = 16;
  config.run_folder = (folder / "run").string();
  config.num_threads = 1;
  config.steps = 12;
  config.batch_size = 4;
  config.micro_batch_size = 2;
  config.schedule.warmup_steps = 2;
  config.checkpoint.every_steps = 4;
  config.log_every_steps = 1;
  config.validate_every_steps = 5;
  config.validation_rows = 4;
  config.loss.head_chunk_tokens = 13;
  return config;
}

// Random rows; the last row has a few masked targets.
inline Batch random_batch(int64_t num_rows, int64_t num_tokens, int64_t vocab_size, uint64_t seed) {
  at::manual_seed(seed);
  Batch batch;
  batch.tokens_BT = at::randint(vocab_size, {num_rows, num_tokens}, at::kLong);
  batch.targets_BT = at::randint(vocab_size, {num_rows, num_tokens}, at::kLong);
  batch.loss_mask_BT = at::ones({num_rows, num_tokens}, at::kBool);
  batch.loss_mask_BT[num_rows - 1].narrow(0, 0, num_tokens / 2).fill_(false);
  batch.sources.assign(static_cast<size_t>(num_rows), 0);
  return batch;
}

}  // namespace smoe::testing
