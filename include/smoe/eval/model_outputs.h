// Answers of a model in the files of AlpacaEval and Arena-Hard, so that answers generated here can be judged
// by those projects' own tools, and answers generated elsewhere can be judged here.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace smoe {

// One entry of AlpacaEval's `model_outputs.json`.
struct AlpacaOutput {
  std::string dataset;  // the part of the benchmark; may be empty
  std::string instruction;
  std::string output;
  std::string generator;  // name of the model
};

// One line of Arena-Hard's `model_answer/MODEL.jsonl`, for a dialogue of one question and one answer.
struct ArenaAnswer {
  std::string uid;        // of the question
  std::string answer_id;  // `ans_id`; empty: derived from the content when written
  std::string model;
  std::string prompt;
  std::string answer;
  double time_s = 0.0;  // `tstamp`: seconds since 1970 when it was generated
};

// A JSON list, or one object a line. Throws DataError naming file, entry and key for anything that is missing
// or no text, for two answers to one instruction and for answers of more than one generator.
std::vector<AlpacaOutput> read_alpaca_outputs(const std::filesystem::path& file);
// Writes a JSON list, complete or not at all.
void write_alpaca_outputs(const std::filesystem::path& file, const std::vector<AlpacaOutput>& outputs);

// One object a line. The last assistant message is the answer: an object with the key `answer`, or plain
// text. Throws DataError like read_alpaca_outputs.
std::vector<ArenaAnswer> read_arena_answers(const std::filesystem::path& file);
void write_arena_answers(const std::filesystem::path& file, const std::vector<ArenaAnswer>& answers);

}  // namespace smoe
