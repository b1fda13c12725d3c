#include "smoe/eval/arena_hard.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "eval/judge_prompts.h"
#include "smoe/core/error.h"
#include "smoe/eval/rows.h"

namespace smoe {
namespace {

constexpr int kStrongWeight = 3;

// Verdicts about A against B. Both ways of writing a label occur in judges' answers.
struct Label {
  std::string_view text;
  double score_a;
  bool is_strong;
};
constexpr std::array kLabels = {
    Label{"A>>B", 1.0, true}, Label{"A>B", 1.0, false}, Label{"A=B", 0.5, false}, Label{"A<B", 0.0, false},
    Label{"A<<B", 0.0, true}, Label{"B>>A", 0.0, true}, Label{"B>A", 0.0, false}, Label{"B=A", 0.5, false},
    Label{"B<A", 1.0, false}, Label{"B<<A", 1.0, true},
};

std::string ascii_upper(std::string text) {
  for (char& c : text) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return text;
}

size_t verdict_column(const ArenaVerdict& verdict) {
  if (*verdict.score == 0.5) return 2;
  if (*verdict.score > 0.5) return verdict.is_strong ? 0 : 1;
  return verdict.is_strong ? 4 : 3;
}

// The groups that the bootstrap draws from.
std::vector<std::vector<Battle>> battle_groups(const ArenaData& data, const std::vector<ArenaGames>& games,
                                               BootstrapUnit unit) {
  std::vector<std::vector<Battle>> groups;
  for (const ArenaGames& pair : games) {
    if (unit == BootstrapUnit::kQuestion) groups.emplace_back();
    for (const ArenaVerdict& verdict : pair) {
      const int copies = !verdict.score ? 0 : verdict.is_strong ? kStrongWeight : 1;
      for (int i = 0; i < copies; ++i) {
        if (unit == BootstrapUnit::kBattle) groups.emplace_back();
        groups.back().push_back({data.model_name, data.baseline_name, *verdict.score, 1.0});
      }
    }
  }
  return groups;
}

// Mean over the games, and its standard error with questions as the independent unit.
void add_plain_win_rate(const std::vector<ArenaGames>& games, ArenaScores& scores) {
  const auto num_valid = static_cast<double>(scores.num_games - scores.num_invalid);
  double sum = 0.0;
  for (const ArenaGames& pair : games) {
    for (const ArenaVerdict& verdict : pair) sum += verdict.score.value_or(0.0);
  }
  scores.plain_win_rate = sum / num_valid;
  double squares = 0.0;
  double num_questions = 0.0;
  for (const ArenaGames& pair : games) {
    double deviation = 0.0;
    for (const ArenaVerdict& verdict : pair) {
      if (verdict.score) deviation += *verdict.score - scores.plain_win_rate;
    }
    squares += deviation * deviation;
    num_questions += pair[0].score || pair[1].score ? 1.0 : 0.0;
  }
  if (num_questions > 1.0) {
    scores.plain_standard_error = std::sqrt(squares * num_questions / (num_questions - 1.0)) / num_valid;
  }
}

}  // namespace

ArenaJudge read_arena_judge(const std::filesystem::path& file) {
  const Row row = read_judge_settings(file);
  ArenaJudge judge;
  judge.model = row.text("judge_model");
  judge.baseline = row.text("baseline");
  judge.system_prompt = row.text("system_prompt");
  judge.prompt_template = row.text("prompt_template");
  for (const char* placeholder : {"{QUESTION}", "{ANSWER_A}", "{ANSWER_B}"}) {
    SMOE_CHECK(DataError, judge.prompt_template.find(placeholder) != std::string::npos,
               "{}: `prompt_template` lacks {}", row.where(), placeholder);
  }
  for (const std::string& pattern : row.texts("regex_patterns")) {
    judge.patterns.emplace_back(pattern, RegularExpressionOptions{});
    SMOE_CHECK(DataError, judge.patterns.back().num_groups() >= 1,
               "{}: the pattern '{}' has no group for the verdict", row.where(), pattern);
  }
  SMOE_CHECK(DataError, !judge.patterns.empty(), "{}: `regex_patterns` is empty", row.where());
  judge.sampling.temperature = judge_number(row, "temperature");
  judge.sampling.max_tokens = static_cast<int64_t>(judge_number(row, "max_tokens"));
  return judge;
}

ArenaData pair_arena_answers(const std::filesystem::path& questions, const std::vector<ArenaAnswer>& baseline,
                             const std::vector<ArenaAnswer>& answers, const ArenaPairing& pairing) {
  SMOE_CHECK(DataError, !baseline.empty() && !answers.empty(), "no answers to compare");
  std::unordered_map<std::string, const ArenaAnswer*> baseline_of;
  std::unordered_map<std::string, const ArenaAnswer*> answer_of;
  for (const ArenaAnswer& answer : baseline) baseline_of[answer.uid] = &answer;
  for (const ArenaAnswer& answer : answers) answer_of[answer.uid] = &answer;
  ArenaData data{answers[0].model, baseline[0].model, {}};
  SMOE_CHECK(DataError, data.model_name != data.baseline_name,
             "the answers are those of the baseline {} itself", data.baseline_name);
  int64_t num_known = 0;
  std::vector<std::string> missing;
  int64_t position = 0;
  for (const Row& row : read_rows(questions, 0)) {
    const std::string uid = row.text("uid");
    const auto answer = answer_of.find(uid);
    if (answer != answer_of.end()) ++num_known;
    if (pairing.limit > 0 && position++ >= pairing.limit) continue;
    SMOE_CHECK(DataError, baseline_of.contains(uid), "{}: {} has no answer to the question {}", row.where(),
               data.baseline_name, uid);
    if (answer == answer_of.end()) {
      missing.push_back(uid);
      continue;
    }
    const std::string category = row.value().contains("category") ? row.text("category") : "";
    data.items.push_back(
        {uid, category, row.text("prompt"), baseline_of[uid]->answer, answer->second->answer});
  }
  SMOE_CHECK(DataError, num_known == std::ssize(answers), "{} of {} answers belong to no question in {}",
             std::ssize(answers) - num_known, answers.size(), questions.string());
  SMOE_CHECK(DataError, missing.empty() || pairing.allow_missing,
             "{} questions have no answer, the first is {}; generate them, or judge what is there with "
             "--allow-missing",
             missing.size(), missing.empty() ? "" : missing[0]);
  SMOE_CHECK(DataError, !data.items.empty(), "no question in {} has an answer", questions.string());
  return data;
}

std::array<JudgeRequest, 2> arena_requests(const ArenaJudge& judge, const ArenaItem& item) {
  const auto request = [&](int game, const std::string& a, const std::string& b) {
    const std::string prompt = fill_placeholders(
        judge.prompt_template, {{"QUESTION", item.question}, {"ANSWER_A", a}, {"ANSWER_B", b}});
    return JudgeRequest{fmt::format("arena_hard {} game {}", item.uid, game + 1),
                        {{"system", judge.system_prompt}, {"user", prompt}}};
  };
  return {request(0, item.baseline_answer, item.model_answer),
          request(1, item.model_answer, item.baseline_answer)};
}

std::optional<std::string> find_verdict(const std::vector<RegularExpression>& patterns,
                                        const std::string& text) {
  const std::string upper = ascii_upper(text);
  for (const RegularExpression& pattern : patterns) {
    RegularExpression::Search search(pattern, upper);
    std::optional<std::string> last;
    for (size_t position = 0; position <= upper.size() && search.find(position, false);) {
      const TextRange group = search.group(1);
      if (group.begin < group.end) last = upper.substr(group.begin, group.end - group.begin);
      position = search.group(0).end;
    }
    if (last) return last;
  }
  return std::nullopt;
}

ArenaVerdict arena_verdict_of_label(const std::string& label, int game) {
  ArenaVerdict verdict;
  const auto found = std::ranges::find(kLabels, label, &Label::text);
  if (found == kLabels.end()) {
    verdict.problem = fmt::format("'{:.40}' is no verdict", label);
    return verdict;
  }
  verdict.label = label;
  verdict.is_strong = found->is_strong;
  verdict.score = game == 0 ? 1.0 - found->score_a : found->score_a;
  return verdict;
}

ArenaVerdict read_arena_verdict(const ArenaJudge& judge, int game, const JudgeReply& reply) {
  ArenaVerdict verdict;
  verdict.problem = reply.problem;
  if (reply.answered) {
    const std::optional<std::string> label = find_verdict(judge.patterns, reply.text);
    if (label) {
      verdict = arena_verdict_of_label(*label, game);
    } else {
      verdict.problem = "no verdict in the answer";
    }
  }
  verdict.raw = reply.text;
  return verdict;
}

ArenaScores score_arena(const ArenaData& data, const std::vector<ArenaGames>& games, BootstrapUnit unit,
                        const BootstrapOptions& options) {
  SMOE_ASSERT(data.items.size() == games.size());
  ArenaScores scores;
  scores.model_name = data.model_name;
  scores.baseline_name = data.baseline_name;
  scores.num_questions = std::ssize(games);
  scores.num_games = 2 * scores.num_questions;
  std::string first_problem;
  for (const ArenaGames& pair : games) {
    for (const ArenaVerdict& verdict : pair) {
      if (verdict.score) {
        ++scores.verdicts[verdict_column(verdict)];
      } else if (scores.num_invalid++ == 0) {
        first_problem = verdict.problem + " " + verdict.raw;
      }
    }
  }
  SMOE_CHECK(DataError, scores.num_invalid < scores.num_games,
             "none of {} judgements is valid; the first says: {}", scores.num_games, first_problem);
  scores.unit = unit;
  scores.bootstrap = options;
  scores.interval =
      bootstrap_win_rate(battle_groups(data, games, unit), data.model_name, data.baseline_name, options);
  add_plain_win_rate(games, scores);
  return scores;
}

}  // namespace smoe
