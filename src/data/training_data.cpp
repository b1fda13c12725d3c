#include "smoe/data/training_data.h"

#include <algorithm>
#include <optional>

#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/core/random.h"
#include "smoe/data/chat_row_source.h"
#include "smoe/data/mixture_order.h"
#include "smoe/data/store_row_source.h"

namespace smoe {

struct TrainingData::Implementation {
  DataConfig config;
  std::vector<std::unique_ptr<RowSource>> sources;
  std::optional<MixtureOrder> order;

  // `open` makes the RowSource of one source of the config.
  template <class Open>
  void open_sources(const DataConfig& data_config, const Open& open) {
    SMOE_CHECK(ConfigError, !data_config.train.empty(),
               "data.train: no source is named; at least one token store or file of messages is needed");
    config = data_config;
    std::vector<double> weights;
    std::vector<std::string> names;
    for (const SourceConfig& source : config.train) {
      sources.push_back(open(source));
      weights.push_back(source.weight);
      names.push_back(source.name);
    }
    order.emplace(weights, names, static_cast<uint64_t>(config.seed));
  }

  // The row of the source that sample `sample.index` of a source reads: every pass has its own permutation.
  int64_t row_of(const MixtureSample& sample) const {
    const int64_t rows = sources[sample.source]->num_rows();
    const auto pass = static_cast<uint64_t>(sample.index / rows);
    const Permutation permutation(
        static_cast<uint64_t>(rows),
        mix_seeds(static_cast<uint64_t>(config.seed), pass, static_cast<uint64_t>(sample.source)));
    return static_cast<int64_t>(permutation(static_cast<uint64_t>(sample.index % rows)));
  }
};

TrainingData::TrainingData(const DataConfig& config, const std::string& tokenizer_hash, int64_t vocab_size)
    : implementation_(std::make_unique<Implementation>()) {
  implementation_->open_sources(config, [&](const SourceConfig& source) {
    return std::make_unique<StoreRowSource>(source, config, tokenizer_hash, vocab_size,
                                            RowPurpose::kTraining);
  });
}

TrainingData::TrainingData(const DataConfig& config, const SftConfig& sft, const Tokenizer& tokenizer,
                           int64_t vocab_size)
    : implementation_(std::make_unique<Implementation>()) {
  const ChatRenderer renderer(load_chat_template(sft.chat_template), tokenizer);
  implementation_->open_sources(config, [&](const SourceConfig& source) {
    return std::make_unique<ChatRowSource>(source, config, sft, renderer, vocab_size, RowPurpose::kTraining);
  });
}

TrainingData::~TrainingData() = default;

Batch TrainingData::rows(int64_t position, int64_t count) const {
  const Implementation& data = *implementation_;
  const std::vector<MixtureSample> samples = data.order->samples(position, count);
  Batch batch = make_batch(count, data.config.sequence_length, data.config.sequences);
  for (int64_t i = 0; i < count; ++i) {
    data.sources[samples[i].source]->fill(data.row_of(samples[i]), batch, i);
    batch.sources[i] = samples[i].source;
  }
  return batch;
}

std::string TrainingData::fingerprint() const {
  const Implementation& data = *implementation_;
  // The leading number changes whenever the code gives another order for the same config.
  std::string text =
      fmt::format("order 1\nsequence_length {}\nsequences {}\nseed {}\n", data.config.sequence_length,
                  static_cast<int>(data.config.sequences), data.config.seed);
  const std::vector<int64_t> shares = data.order->shares();
  for (size_t i = 0; i < data.sources.size(); ++i) {
    text += fmt::format("source share {} {}\n", shares[i], data.sources[i]->identity());
  }
  return sha256_of_bytes(text);
}

std::vector<int64_t> TrainingData::rows_per_epoch() const {
  std::vector<int64_t> rows;
  for (const auto& source : implementation_->sources) {
    rows.push_back(source->num_rows());
  }
  return rows;
}

std::vector<int64_t> TrainingData::source_tokens() const {
  std::vector<int64_t> tokens;
  for (const auto& source : implementation_->sources) {
    tokens.push_back(source->num_tokens());
  }
  return tokens;
}

struct ValidationData::Implementation {
  SequenceKind sequences;
  int64_t row_tokens;
  std::unique_ptr<RowSource> source;
};

ValidationData::ValidationData(const SourceConfig& source, const DataConfig& config,
                               const std::string& tokenizer_hash, int64_t vocab_size)
    : implementation_(
          new Implementation{config.sequences, config.sequence_length,
                             std::make_unique<StoreRowSource>(source, config, tokenizer_hash, vocab_size,
                                                              RowPurpose::kValidation)}) {}

ValidationData::ValidationData(const SourceConfig& source, const DataConfig& config, const SftConfig& sft,
                               const Tokenizer& tokenizer, int64_t vocab_size)
    : implementation_(new Implementation{
          config.sequences, config.sequence_length,
          std::make_unique<ChatRowSource>(source, config, sft,
                                          ChatRenderer(load_chat_template(sft.chat_template), tokenizer),
                                          vocab_size, RowPurpose::kValidation)}) {}

ValidationData::~ValidationData() = default;

int64_t ValidationData::num_rows() const { return implementation_->source->num_rows(); }

Batch ValidationData::rows(int64_t begin, int64_t count) const {
  SMOE_ASSERT(begin >= 0 && count >= 0 && begin + count <= num_rows());
  Batch batch = make_batch(count, implementation_->row_tokens, implementation_->sequences);
  for (int64_t i = 0; i < count; ++i) {
    implementation_->source->fill(begin + i, batch, i);
  }
  return batch;
}

double ValidationData::bytes_per_token() const { return implementation_->source->bytes_per_target(); }

}  // namespace smoe
