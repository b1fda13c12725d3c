#include "eval/judge_report.h"

#include <fmt/format.h>

namespace smoe {
namespace {

std::string percent(double value) { return fmt::format("{:.2f}", 100.0 * value); }
std::string percent(double value, double error) {
  return fmt::format("{:.2f} ±{:.2f}", 100.0 * value, 100.0 * error);
}

// The formula without difficulties predicts one number for all instructions: their spread says nothing.
bool has_standard_error(const LengthControlResult& controlled) {
  return controlled.formula != LengthControl::kMinimal;
}

std::string controlled_cell(const LengthControlResult& controlled) {
  return has_standard_error(controlled) ? percent(controlled.win_rate, controlled.standard_error)
                                        : percent(controlled.win_rate);
}

// Why a number is not the leaderboard's.
std::string formula_note(LengthControl formula) {
  switch (formula) {
    case LengthControl::kFull:
      return "the leaderboard's formula";
    case LengthControl::kNoGamed:
      return "without the published judgements of rewritten baselines (--gamed): close to the leaderboard's "
             "number, not equal";
    case LengthControl::kMinimal:
      return "without the published difficulties (--difficulty, --gamed): length only, not the leaderboard's "
             "number";
  }
  return "";
}

}  // namespace

nlohmann::ordered_json scores_json(const AlpacaScores& scores) {
  nlohmann::ordered_json json = {{"win_rate", scores.win_rate},
                                 {"standard_error", scores.standard_error},
                                 {"length_controlled", nullptr},
                                 {"rows", scores.num_items},
                                 {"invalid", scores.num_invalid},
                                 {"wins", scores.num_wins},
                                 {"draws", scores.num_draws},
                                 {"average_length", scores.average_length},
                                 {"baseline_average_length", scores.baseline_average_length}};
  if (const auto& controlled = scores.length_controlled) {
    json["length_controlled"] = {{"formula", enum_to_name(controlled->formula)},
                                 {"is_leaderboard_formula", controlled->formula == LengthControl::kFull},
                                 {"win_rate", controlled->win_rate},
                                 {"standard_error", nullptr},
                                 {"regularization", controlled->regularization},
                                 {"length_weight", controlled->length_weight},
                                 {"difficulty_weight", controlled->difficulty_weight},
                                 {"model_weight", controlled->model_weight}};
    if (has_standard_error(*controlled)) {
      json["length_controlled"]["standard_error"] = controlled->standard_error;
    }
  } else {
    json["length_control_problem"] = scores.length_control_problem;
  }
  return json;
}

nlohmann::ordered_json scores_json(const ArenaScores& scores) {
  return {{"win_rate", scores.interval.win_rate},
          {"low", scores.interval.low},
          {"high", scores.interval.high},
          {"rating", scores.interval.rating},
          {"bootstrap_unit", enum_to_name(scores.unit)},
          {"bootstrap_rounds", scores.bootstrap.rounds},
          {"bootstrap_seed", scores.bootstrap.seed},
          {"unweighted_win_rate", scores.plain_win_rate},
          {"unweighted_standard_error", scores.plain_standard_error},
          {"rows", scores.num_questions},
          {"games", scores.num_games},
          {"invalid", scores.num_invalid},
          {"verdicts",
           {{"much_better", scores.verdicts[0]},
            {"better", scores.verdicts[1]},
            {"tie", scores.verdicts[2]},
            {"worse", scores.verdicts[3]},
            {"much_worse", scores.verdicts[4]}}}};
}

nlohmann::ordered_json usage_json(const JudgeUsage& usage) {
  return {{"asked", usage.asked},
          {"resumed", usage.resumed},
          {"retries", usage.retries},
          {"failed", usage.failed},
          {"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"cost", usage.cost}};
}

Table scores_table(const AlpacaScores& scores) {
  Table table({"model", "LC win rate", "win rate", "rows", "invalid", "length", "baseline's length"});
  const auto& controlled = scores.length_controlled;
  table.add_row({scores.model_name, controlled ? controlled_cell(*controlled) : "none",
                 percent(scores.win_rate, scores.standard_error), std::to_string(scores.num_items),
                 std::to_string(scores.num_invalid), fmt::format("{:.0f}", scores.average_length),
                 fmt::format("{:.0f}", scores.baseline_average_length)});
  return table;
}

Table scores_table(const ArenaScores& scores) {
  Table table({"model", "score", "95% interval", "unweighted", "questions", "games", "invalid", "verdicts"});
  const WinRateInterval& interval = scores.interval;
  table.add_row({scores.model_name, percent(interval.win_rate),
                 fmt::format("{} to {}", percent(interval.low), percent(interval.high)),
                 percent(scores.plain_win_rate, scores.plain_standard_error),
                 std::to_string(scores.num_questions), std::to_string(scores.num_games),
                 std::to_string(scores.num_invalid), fmt::format("{}", fmt::join(scores.verdicts, "/"))});
  return table;
}

std::string score_notes(const AlpacaScores& scores) {
  std::string notes = fmt::format("In percent against {}; ± is one standard error. Lengths in characters.\n",
                                  scores.baseline_name);
  if (scores.length_controlled) {
    notes += fmt::format("LC win rate: {}, {}.\n", enum_to_name(scores.length_controlled->formula),
                         formula_note(scores.length_controlled->formula));
  } else {
    notes += fmt::format("No LC win rate: {}.\n", scores.length_control_problem);
  }
  return notes;
}

std::string score_notes(const ArenaScores& scores) {
  return fmt::format(
      "In percent against {}: Bradley-Terry, strong verdicts counting three times; interval from {} "
      "bootstrap\n"
      "rounds over {}s. unweighted: mean of the games, ± one standard error over questions. verdicts: from "
      "much\n"
      "better to much worse.\n",
      scores.baseline_name, scores.bootstrap.rounds, enum_to_name(scores.unit));
}

std::string usage_note(const JudgeUsage& usage) {
  std::string note = fmt::format(
      "Judge: {} requests asked, {} from the log, {} retries, {} failed; {} prompt and "
      "{} completion tokens",
      usage.asked, usage.resumed, usage.retries, usage.failed, usage.prompt_tokens, usage.completion_tokens);
  if (usage.cost > 0.0) note += fmt::format(", cost {:.2f}", usage.cost);
  return note + ".\n";
}

}  // namespace smoe
