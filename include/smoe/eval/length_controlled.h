// The length-controlled win rate of AlpacaEval 2 (Dubois et al. 2024): a logistic regression explains the
// judge's preferences by the model, the difference in length and the difficulty of the instruction; the win
// rate is what it predicts at equal length.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "smoe/core/config_visitors.h"

namespace smoe {

// Which of the published formulas; they need different data. Only kFull is the leaderboard's number.
enum class LengthControl {
  kFull,     // difficulty, and the judgements of the two rewritten baselines as a regulariser
  kNoGamed,  // difficulty only
  kMinimal,  // length only
};
template <>
struct EnumNames<LengthControl> {
  static constexpr std::array values = {enum_name(LengthControl::kFull, "length_controlled_v1"),
                                        enum_name(LengthControl::kNoGamed, "length_controlled_noreg"),
                                        enum_name(LengthControl::kMinimal, "length_controlled_minimal")};
};

// Judgements of a concise and a verbose rewriting of the baseline: one row an instruction and rewriting.
struct GamedBaselines {
  std::vector<double> preference;      // in [0, 1]
  std::vector<double> length_feature;  // difference in length, standardised
  std::vector<double> difficulty;      // of the row's instruction
};

// The tables that the project publishes, where they are at hand.
struct LengthControlData {
  std::vector<double> difficulty;       // by position of the instruction in the benchmark; empty: unknown
  std::optional<GamedBaselines> gamed;  // with `difficulty` only

  LengthControl formula() const;
};

// `difficulty_file`: the published `instruction_difficulty.csv` (position, instruction_difficulty).
// `gamed_file`: the published `df_gamed.csv` (preference, index, std_delta_len, instruction_difficulty, ...),
// which holds the difficulties too. Empty paths: not at hand. Throws DataError with file and line.
LengthControlData read_length_control_data(const std::filesystem::path& difficulty_file,
                                           const std::filesystem::path& gamed_file);

// One instruction as the regression sees it. Lengths are in characters (Unicode code points).
struct LengthControlItem {
  int64_t index = 0;                 // position in the benchmark
  std::optional<double> preference;  // probability that the model is better; none: invalid, only predicted
  int64_t baseline_length = 0;
  int64_t model_length = 0;
};

struct LengthControlResult {
  LengthControl formula = LengthControl::kMinimal;
  double win_rate = 0.0;        // in [0, 1]
  double standard_error = 0.0;  // of the mean prediction over instructions; 0 with kMinimal
  double regularization = 0.0;  // C, chosen by five-fold cross-validation from ten values
  double length_weight = 0.0;
  double difficulty_weight = 0.0;  // 0 without difficulties
  double model_weight = 0.0;
};

// Throws DataError for fewer than five judged items, for lengths that do not differ at all and for an item
// without difficulty where the table has none.
LengthControlResult length_controlled_win_rate(const std::vector<LengthControlItem>& items,
                                               const LengthControlData& data);

}  // namespace smoe
