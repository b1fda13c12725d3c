// Judgements in Arena-Hard's own file format.
#include <unordered_map>

#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/eval/arena_hard.h"
#include "smoe/eval/rows.h"

namespace smoe {
namespace {

ArenaVerdict verdict_of_game(const Row& row, const nlohmann::json& json, int game) {
  SMOE_CHECK(DataError, json.is_object() && json.contains("score"), "{}: game {} has no `score`", row.where(),
             game + 1);
  const nlohmann::json& score = json["score"];
  SMOE_CHECK(DataError, score.is_string() || score.is_null(),
             "{}: `score` of game {} is {}; expected a verdict such as \"A>B\", or null", row.where(),
             game + 1, score.dump());
  ArenaVerdict verdict;
  verdict.problem = "no verdict in the file of judgements";
  if (score.is_string()) verdict = arena_verdict_of_label(score.get<std::string>(), game);
  if (const auto text = json.find("judgment"); text != json.end()) {
    if (text->is_string()) verdict.raw = text->get<std::string>();
    if (text->is_object()) verdict.raw = text->value("answer", "");
  }
  return verdict;
}

ArenaGames missing_games() {
  ArenaGames games;
  for (ArenaVerdict& verdict : games) verdict.problem = "not in the file of judgements";
  return games;
}

}  // namespace

void write_arena_judgements(const std::filesystem::path& file, const std::string& judge_model,
                            const ArenaData& data, const std::vector<ArenaGames>& games) {
  SMOE_ASSERT(data.items.size() == games.size());
  std::string lines;
  for (size_t i = 0; i < games.size(); ++i) {
    nlohmann::ordered_json line = {
        {"uid", data.items[i].uid},       {"category", data.items[i].category},
        {"judge", judge_model},           {"model", data.model_name},
        {"baseline", data.baseline_name}, {"games", nlohmann::ordered_json::array()}};
    for (const ArenaVerdict& verdict : games[i]) {
      nlohmann::ordered_json game = {{"score", nullptr}, {"judgment", {{"answer", verdict.raw}}}};
      if (verdict.score) game["score"] = verdict.label;
      if (!verdict.problem.empty()) game["problem"] = verdict.problem;
      line["games"].push_back(std::move(game));
    }
    lines += line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  }
  write_file_atomically(file, lines);
}

std::vector<ArenaGames> read_arena_judgements(const std::filesystem::path& file, const ArenaData& data) {
  std::unordered_map<std::string, ArenaGames> games_of;
  for (const Row& row : read_rows(file, 0)) {
    const std::string uid = row.text(row.value().contains("uid") ? "uid" : "question_id");
    SMOE_CHECK(DataError, row.text("model") == data.model_name,
               "{}: a judgement of {}; the answers are of {}", row.where(), row.text("model"),
               data.model_name);
    const auto list = row.value().find("games");
    SMOE_CHECK(DataError, list != row.value().end() && list->is_array() && list->size() == 2,
               "{}: expected a list `games` of two", row.where());
    ArenaGames games;
    for (int game = 0; game < 2; ++game) games[game] = verdict_of_game(row, (*list)[game], game);
    SMOE_CHECK(DataError, games_of.emplace(uid, games).second, "{}: a second judgement of the question {}",
               row.where(), uid);
  }
  std::vector<ArenaGames> games;
  for (const ArenaItem& item : data.items) {
    const auto found = games_of.find(item.uid);
    games.push_back(found == games_of.end() ? missing_games() : found->second);
  }
  return games;
}

}  // namespace smoe
