// Which experts a Stepped MoE chooses for given texts, by topic: the work of smoe-inspect masks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "smoe/analysis/mask_similarity.h"
#include "smoe/data/tokenizer.h"
#include "smoe/model/model.h"

namespace smoe {

// A text in parts, each about one topic.
struct TopicText {
  std::string name;
  struct Part {
    std::string topic;
    std::string text;
  };
  std::vector<Part> parts;
};

// JSON Lines, each {"name": ..., "parts": [{"topic": ..., "text": ...}, ...]}, or {"text": ..., "domain":
// ...} for a text about one topic. Throws DataError naming file and line.
std::vector<TopicText> read_topic_texts(const std::filesystem::path& path);

struct MaskStudyOptions {
  std::vector<int64_t> budgets;           // indices
  int64_t segment_length = 32;            // of everything but the hit rates
  std::vector<int64_t> hit_rate_lengths;  // segment lengths at which hit rates are measured
  int64_t max_tokens = 2048;              // of a text; what is longer is cut
  int64_t permutations = 9999;            // of the significance test
  uint64_t seed = 1;
};

// What one text showed at one budget.
struct TextMasks {
  std::string text;
  std::vector<std::string> topics;  // of each whole segment: the topic of its first token
  at::Tensor mask_QLE;              // uint8
  at::Tensor cosine_QQ;
  TopicSimilarity similarity;  // of its segments
};

struct BudgetMasks {
  std::string budget;
  int64_t experts_per_layer = 0;
  std::vector<TextMasks> texts;
  std::vector<std::string> topics;  // of all texts, in order of appearance
  at::Tensor load_LE;               // float64: share of all segments that chose the expert
  at::Tensor topic_load_GLE;        // the same among the segments of a topic
  // Between the mean masks of texts that have a single topic; no pairs if there are none.
  TopicSimilarity between_texts;
  int64_t compared_segments = 0;  // from the start of each such text: the number of the shortest one
  std::optional<double> p_value;  // of between_texts; absent without pairs of both kinds
  // By hit_rate_lengths; absent where no text has a second segment.
  std::vector<std::optional<double>> hit_rates;
};

struct MaskStudy {
  std::vector<BudgetMasks> budgets;
  std::vector<double> nesting;  // share of the experts of budget i that budget i + 1 has too
};

// Throws ConfigError for a model without segment routing.
MaskStudy study_masks(const Model& model, const Tokenizer& tokenizer, const std::vector<TopicText>& texts,
                      const MaskStudyOptions& options);

nlohmann::ordered_json to_json(const MaskStudy& study, const MaskStudyOptions& options);
// Tables for the terminal.
std::string describe(const MaskStudy& study, const MaskStudyOptions& options);

// Draws into `folder`, as `ending` says .svg or .png files: similarity-TEXT-BUDGET of each text with several
// topics, load-BUDGET, topics-BUDGET and hit_rate. Throws what write_gnuplot throws.
void plot_masks(const MaskStudy& study, const MaskStudyOptions& options, const std::filesystem::path& folder,
                const std::string& ending = "svg");

}  // namespace smoe
