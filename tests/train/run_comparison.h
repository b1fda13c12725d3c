// Compares two runs of the same config: their metrics and their weights.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "smoe/core/config.h"
#include "smoe/core/files.h"
#include "smoe/model/checkpoint_reader.h"
#include "smoe/model/model.h"
#include "smoe/train/train_config.h"

namespace smoe::testing {

// What the order of float32 sums may change over a few steps: relative for losses and norms, absolute
// for weights. A row that is counted twice or a loss that is averaged in the wrong way is off by more than
// 1e-2.
constexpr double kLossBound = 2e-6;
constexpr double kWeightBound = 4e-6;

inline std::vector<nlohmann::json> metrics(const std::filesystem::path& run) {
  std::vector<nlohmann::json> lines;
  std::istringstream stream(read_file(run / "metrics.jsonl"));
  for (std::string line; std::getline(stream, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

// Every number of a metrics line but those that are about time and memory.
inline void compare(const nlohmann::json& own, const nlohmann::json& other, const std::string& path) {
  for (const char* skipped : {"per_s", "seconds", "remaining", "memory", "time", "mfu", "flop", "blocked"}) {
    if (path.find(skipped) != std::string::npos) return;
  }
  if (own.is_object() || own.is_array()) {
    ASSERT_EQ(own.size(), other.size()) << path;
    for (auto at = own.begin(); at != own.end(); ++at) {
      const std::string key = own.is_object() ? at.key() : std::to_string(at - own.begin());
      compare(*at, own.is_object() ? other.at(key) : other.at(static_cast<size_t>(at - own.begin())),
              path + "/" + key);
    }
  } else if (own.is_number_float()) {
    const double expected = own, found = other;
    EXPECT_NEAR(found, expected, kLossBound * std::max(1.0, std::abs(expected))) << path;
  } else {
    EXPECT_EQ(other, own) << path;
  }
}

inline double largest_weight_difference(const std::filesystem::path& one, const std::filesystem::path& two) {
  ConfigSource source;
  source.file = one / "config.yaml";  // as the run resolved it
  const ModelConfig config = read_config<TrainConfig>(source).model;
  Model first(config, at::kCPU), second(config, at::kCPU);
  load_model_weights(resolve_checkpoint(one), first);
  load_model_weights(resolve_checkpoint(two), second);
  double largest = 0.0;
  for (size_t i = 0; i < first.parameters().size(); ++i) {
    const at::Tensor difference =
        first.parameters()[i].tensor.detach() - second.parameters()[i].tensor.detach();
    largest = std::max(largest, difference.abs().max().item<double>());
  }
  return largest;
}

}  // namespace smoe::testing
