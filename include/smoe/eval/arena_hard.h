// Arena-Hard: a judge compares a model's answers with a baseline's in two games a question, with the
// positions swapped, and writes a verdict; the score is the win rate that a Bradley-Terry model gives.
#pragma once

#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "smoe/core/config_visitors.h"
#include "smoe/core/regular_expression.h"
#include "smoe/eval/bradley_terry.h"
#include "smoe/eval/judge_client.h"
#include "smoe/eval/model_outputs.h"

namespace smoe {

// How the judge is asked and its verdict read.
struct ArenaJudge {
  std::string model;     // that the benchmark prescribes
  std::string baseline;  // model that the answers are compared with
  std::string system_prompt;
  std::string prompt_template;              // with the placeholders {QUESTION}, {ANSWER_A} and {ANSWER_B}
  std::vector<RegularExpression> patterns;  // tried in turn; group 1 is the verdict
  JudgeSampling sampling;
};

// Reads a judge from one JSON object with the keys judge_model, baseline, system_prompt, prompt_template,
// regex_patterns, max_tokens and temperature. Throws DataError.
ArenaJudge read_arena_judge(const std::filesystem::path& file);

struct ArenaItem {
  std::string uid;
  std::string category;
  std::string question;
  std::string baseline_answer;
  std::string model_answer;
};

struct ArenaData {
  std::string model_name;
  std::string baseline_name;
  std::vector<ArenaItem> items;
};

struct ArenaPairing {
  int64_t limit = 0;           // first questions only; 0: all
  bool allow_missing = false;  // judge what is there
};

// Joins questions, answers and the baseline's answers by uid, in the order of the questions. Throws DataError
// for answers to unknown questions and for missing ones.
ArenaData pair_arena_answers(const std::filesystem::path& questions, const std::vector<ArenaAnswer>& baseline,
                             const std::vector<ArenaAnswer>& answers, const ArenaPairing& pairing);

// The two games: in the first the baseline is assistant A, in the second the model.
std::array<JudgeRequest, 2> arena_requests(const ArenaJudge& judge, const ArenaItem& item);

// What a game says about the model, whichever side it was on.
struct ArenaVerdict {
  std::string label;            // "A>>B", ...; empty: invalid
  std::optional<double> score;  // 1 the model is better, 0.5 a tie, 0 the baseline is better
  bool is_strong = false;       // "significantly": counts three times
  std::string raw;
  std::string problem;
};

// The last match of the first pattern that matches, in upper case; none if no pattern does.
std::optional<std::string> find_verdict(const std::vector<RegularExpression>& patterns,
                                        const std::string& text);
// `game`: 0 or 1. Labels are A>>B, A>B, A=B, B>A, B>>A and the same turned round (B<<A, ...); all else is
// invalid.
ArenaVerdict arena_verdict_of_label(const std::string& label, int game);
ArenaVerdict read_arena_verdict(const ArenaJudge& judge, int game, const JudgeReply& reply);

using ArenaGames = std::array<ArenaVerdict, 2>;

// Judgements in the project's own format (one JSON line a question), written and read. Reading takes them in
// the order of `data`; questions without judgement are invalid.
void write_arena_judgements(const std::filesystem::path& file, const std::string& judge_model,
                            const ArenaData& data, const std::vector<ArenaGames>& games);
std::vector<ArenaGames> read_arena_judgements(const std::filesystem::path& file, const ArenaData& data);

// What is drawn together in the bootstrap.
enum class BootstrapUnit {
  kBattle,    // single verdicts, strong ones three times, as published
  kQuestion,  // all verdicts on a question, which are not independent: wider intervals
};
template <>
struct EnumNames<BootstrapUnit> {
  static constexpr std::array values = {enum_name(BootstrapUnit::kBattle, "battle"),
                                        enum_name(BootstrapUnit::kQuestion, "question")};
};

struct ArenaScores {
  std::string model_name;
  std::string baseline_name;
  int64_t num_questions = 0;
  int64_t num_games = 0;
  int64_t num_invalid = 0;            // games
  std::array<int64_t, 5> verdicts{};  // model much better, better, tie, worse, much worse
  BootstrapUnit unit = BootstrapUnit::kBattle;
  BootstrapOptions bootstrap;
  WinRateInterval interval;
  double plain_win_rate = 0.0;        // mean score of the games, strong ones counted once
  double plain_standard_error = 0.0;  // over questions
};

// Throws DataError if no verdict is valid.
ArenaScores score_arena(const ArenaData& data, const std::vector<ArenaGames>& games, BootstrapUnit unit,
                        const BootstrapOptions& options);

}  // namespace smoe
