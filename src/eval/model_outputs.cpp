#include "smoe/eval/model_outputs.h"

#include <set>

#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/core/json.h"
#include "smoe/eval/rows.h"
#include "smoe/eval/text_filters.h"

namespace smoe {
namespace {

std::vector<Row> read_list_or_lines(const std::filesystem::path& file) {
  const std::string bytes = read_file(file);
  if (!strip(bytes).starts_with('[')) return read_rows(file, 0);
  const nlohmann::json list = parse_json(bytes, file.string());
  SMOE_CHECK(DataError, !list.empty(), "{}: the list is empty; expected answers of a model", file.string());
  std::vector<Row> rows;
  for (const nlohmann::json& value : list) {
    SMOE_CHECK(DataError, value.is_object(), "{}: entry {} is {}; expected an object", file.string(),
               rows.size() + 1, value.type_name());
    rows.emplace_back(file.string() + ", entry", std::ssize(rows) + 1, value);
  }
  return rows;
}

std::string optional_text(const Row& row, const char* key) {
  const auto found = row.value().find(key);
  return found == row.value().end() || found->is_null() ? "" : row.text(key);
}

// The content of an assistant message: {"answer": TEXT}, or the text itself.
std::string answer_text(const Row& row) {
  const auto messages = row.value().find("messages");
  SMOE_CHECK(DataError, messages != row.value().end() && messages->is_array() && !messages->empty(),
             "{}: no list `messages`; expected a question and its answer", row.where());
  const nlohmann::json& last = messages->back();
  SMOE_CHECK(DataError, last.is_object() && last.value("role", "") == "assistant" && last.contains("content"),
             "{}: the last of `messages` is no answer of the assistant", row.where());
  const nlohmann::json& content = last["content"];
  if (content.is_string()) return content.get<std::string>();
  SMOE_CHECK(DataError, content.is_object() && content.contains("answer") && content["answer"].is_string(),
             "{}: the answer is {}; expected a text, or an object with the text under `answer`", row.where(),
             content.type_name());
  return content["answer"].get<std::string>();
}

std::string prompt_text(const Row& row) {
  const nlohmann::json& first = row.value()["messages"].front();
  return first.is_object() && first.contains("content") && first["content"].is_string()
             ? first["content"].get<std::string>()
             : "";
}

template <class Entry>
void check_one_model(const std::string& name, const Entry& entry, std::string& model) {
  if (model.empty()) model = name;
  SMOE_CHECK(DataError, model == name, "{}: an answer of {} among answers of {}; one file holds one model",
             entry.where(), name, model);
}

std::string json_line(const nlohmann::ordered_json& json) { return json.dump() + "\n"; }

}  // namespace

std::vector<AlpacaOutput> read_alpaca_outputs(const std::filesystem::path& file) {
  std::vector<AlpacaOutput> outputs;
  std::set<std::string> seen;
  std::string model;
  for (const Row& row : read_list_or_lines(file)) {
    outputs.push_back(
        {optional_text(row, "dataset"), row.text("instruction"), row.text("output"), row.text("generator")});
    check_one_model(outputs.back().generator, row, model);
    SMOE_CHECK(DataError, seen.insert(outputs.back().instruction).second,
               "{}: a second answer to the instruction '{:.80}'", row.where(), outputs.back().instruction);
  }
  return outputs;
}

void write_alpaca_outputs(const std::filesystem::path& file, const std::vector<AlpacaOutput>& outputs) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const AlpacaOutput& output : outputs) {
    list.push_back({{"dataset", output.dataset},
                    {"instruction", output.instruction},
                    {"output", output.output},
                    {"generator", output.generator}});
  }
  write_file_atomically(file, list.dump(2) + "\n");
}

std::vector<ArenaAnswer> read_arena_answers(const std::filesystem::path& file) {
  std::vector<ArenaAnswer> answers;
  std::set<std::string> seen;
  std::string model;
  for (const Row& row : read_list_or_lines(file)) {
    const auto time = row.value().find("tstamp");
    answers.push_back({row.text("uid"), optional_text(row, "ans_id"), row.text("model"), "", answer_text(row),
                       time != row.value().end() && time->is_number() ? time->get<double>() : 0.0});
    answers.back().prompt = prompt_text(row);
    check_one_model(answers.back().model, row, model);
    SMOE_CHECK(DataError, seen.insert(answers.back().uid).second, "{}: a second answer to the question {}",
               row.where(), answers.back().uid);
  }
  return answers;
}

void write_arena_answers(const std::filesystem::path& file, const std::vector<ArenaAnswer>& answers) {
  std::string lines;
  for (const ArenaAnswer& answer : answers) {
    const std::string content = fmt::format("{}\n{}\n{}", answer.uid, answer.model, answer.answer);
    const std::string id =
        answer.answer_id.empty() ? sha256_of_bytes(content).substr(0, 22) : answer.answer_id;
    nlohmann::ordered_json messages = nlohmann::ordered_json::array();
    messages.push_back({{"role", "user"}, {"content", answer.prompt}});
    messages.push_back({{"role", "assistant"}, {"content", {{"answer", answer.answer}}}});
    lines += json_line({{"uid", answer.uid},
                        {"ans_id", id},
                        {"model", answer.model},
                        {"messages", messages},
                        {"tstamp", answer.time_s}});
  }
  write_file_atomically(file, lines);
}

}  // namespace smoe
