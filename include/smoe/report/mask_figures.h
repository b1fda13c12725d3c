// The figures about routing masks that smoe-inspect masks leaves in masks.json, as a report needs them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "smoe/report/heatmap.h"

namespace smoe {

// Mean cosines of pairs of masks, within a topic and across topics.
struct PairSimilarity {
  double within = 0.0;
  double across = 0.0;
  int64_t within_pairs = 0;
  int64_t across_pairs = 0;
};

// A text with several topics.
struct MaskText {
  std::string name;
  std::vector<std::string> topics;  // a segment
  PairSimilarity segments;
  Matrix cosine;  // segment by segment
};

struct MaskBudget {
  std::string name;
  int64_t experts_per_layer = 0;
  PairSimilarity between_texts;
  std::optional<double> p_value;
  std::vector<std::pair<double, double>> hit_rates;         // segment length, rate; lengths that have one
  Matrix load;                                              // layer by expert
  std::vector<std::pair<std::string, Matrix>> topic_loads;  // by topic
  std::vector<MaskText> texts;                              // only those with several topics
};

struct MaskFigures {
  std::string name;  // of the folder or file they were read from
  int64_t segment_length = 0;
  std::vector<MaskBudget> budgets;
  std::vector<double> nesting;  // share of the experts of budget i that budget i + 1 has too
};

// `path` is a masks.json or a folder that holds one. Throws DataError naming the file and what is wrong.
MaskFigures read_mask_figures(const std::filesystem::path& path);

}  // namespace smoe
