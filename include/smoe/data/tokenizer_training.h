// Trains SentencePiece tokenizers for language models, and measures how well a tokenizer fits a text.
//
// The settings are chosen so that text survives: no normalisation, no removal of spaces, every character
// outside the vocabulary as bytes. decode(encode(text)) == text for valid UTF-8 without U+2581, which
// SentencePiece itself uses for the space. Ids: <unk> 0, <s> 1, </s> 2, then the special tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "smoe/data/tokenizer.h"

namespace smoe {

enum class TokenizerModel {
  kUnigram,  // keeps the vocabulary that explains the sample best (Kudo 2018); where two segmentations score
             // alike, versions of SentencePiece choose differently
  kBpe,  // merges the most frequent pairs (Sennrich et al. 2016)
};

// Puts the next document into `text`, line breaks included, and returns true; returns false at the end.
using DocumentSource = std::function<bool(std::string& text)>;

struct TokenizerTrainingOptions {
  int64_t vocab_size = 4096;  // includes <unk>, <s>, </s>, the special tokens and the 256 bytes
  TokenizerModel model = TokenizerModel::kBpe;
  std::vector<std::string> special_tokens;  // control symbols: encode() never yields them from plain text
  double character_coverage = 0.9995;       // share of characters that get a token; the rest become bytes
  bool add_dummy_prefix = true;             // a space before the text (as Llama has it); removed by decode
  int64_t max_sample_bytes = int64_t{8} << 20;  // documents are sampled uniformly down to this; 0: all
  int64_t max_token_characters = 16;            // longest token, in characters
  int64_t num_threads = 2;
  uint64_t seed = 1;  // of the sample
};

struct TokenizerTrainingResult {
  std::string model;  // bytes of the .model file
  int64_t documents = 0;
  int64_t bytes = 0;
  int64_t sampled_documents = 0;
  int64_t sampled_bytes = 0;
};

// Reads all of `documents`, samples and trains. Equal inputs and options give an equal model. Throws
// ConfigError for options that cannot be met and DataError where the text is too small for the vocabulary;
// both say what to change.
TokenizerTrainingResult train_sentencepiece(const DocumentSource& documents,
                                            const TokenizerTrainingOptions& options);

struct TokenizerReport {
  int64_t documents = 0;
  int64_t bytes = 0;
  int64_t tokens = 0;
  int64_t lossy_documents = 0;  // where decode(encode(text)) differs from the text
  std::string first_lossy;      // start of the first such document
  double bytes_per_token() const { return tokens == 0 ? 0.0 : double(bytes) / double(tokens); }
};

// Encodes and decodes every document.
TokenizerReport measure_tokenizer(const Tokenizer& tokenizer, const DocumentSource& documents);

}  // namespace smoe
