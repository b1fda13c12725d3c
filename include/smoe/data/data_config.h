// Config of the training and validation data.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "smoe/core/config.h"

namespace smoe {

// How token streams become rows.
enum class SequenceKind {
  kStream,  // cut from the concatenated documents; attention crosses document borders
  kPacked,  // whole documents packed into rows, block-diagonal attention, positions reset
};
template <>
struct EnumNames<SequenceKind> {
  static constexpr std::array values = {enum_name(SequenceKind::kStream, "stream"),
                                        enum_name(SequenceKind::kPacked, "packed")};
};

// One source of a mixture: a token store, or a file of messages.
struct SourceConfig {
  std::string name;
  std::string path;
  double weight = 1.0;
};
template <class Visitor>
void visit_fields(Visitor& visitor, SourceConfig& config) {
  visitor.field("name", config.name, "label in metrics");
  visitor.field(
      "path", config.path,
      "token store without its extension (PATH.bin, PATH.idx, PATH.json); task sft: file of messages "
      "(.jsonl, .jsonl.zst)");
  visitor.field("weight", config.weight, "share of the rows, relative to the other sources", positive());
}

struct DataConfig {
  std::string tokenizer;
  std::vector<SourceConfig> train;
  std::vector<SourceConfig> validation;
  int64_t sequence_length = 512;
  SequenceKind sequences = SequenceKind::kStream;
  int64_t seed = 1;
};
template <class Visitor>
void visit_fields(Visitor& visitor, DataConfig& config) {
  visitor.field("tokenizer", config.tokenizer, "SentencePiece .model or Hugging Face tokenizer.json");
  visitor.field("train", config.train, "mixture of sources");
  visitor.field("validation", config.validation, "sources, each scored by itself (weights are ignored)");
  visitor.field("sequence_length", config.sequence_length, "T: tokens a row", at_least(2));
  visitor.field("sequences", config.sequences,
                "rows cut from the stream, or documents packed and kept apart");
  visitor.field("seed", config.seed, "of the global order of the training rows");
}

// Names label metrics, so those of a list must not be empty and must differ.
void validate(const DataConfig& config, ConfigProblems& problems);

}  // namespace smoe
