// From benchmark rows to the texts that are scored: prompts, shots, choices.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "smoe/data/chat_message.h"
#include "smoe/eval/rows.h"
#include "smoe/eval/task_config.h"

namespace smoe {

// `continuation` is scored after `context`.
struct TextPair {
  std::string context;
  std::string continuation;
};

// One row, ready to be scored.
struct EvaluationItem {
  int64_t line = 0;                     // in its data file, from 1
  std::string where;                    // FILE:LINE
  std::vector<TextPair> pairs;          // one a choice; kinds that generate: one, without continuation
  std::vector<std::string> choices;     // the texts whose length normalises the sums
  int64_t gold = 0;                     // index of the right choice
  std::vector<int64_t> shots;           // rows of the few-shot split that were shown
  std::vector<std::string> references;  // generate: the right answers
  std::vector<std::string> stops;       // kinds that generate
  std::optional<Row> row;               // kinds that check or write answers need more of it
  std::string subgroup;                 // the value of subgroup_field
  Conversation dialogue;                // for a chat template: the messages before the last, pairs[].context
};

// How a prompt is laid out.
enum class PromptLayout {
  kText,        // description, shots and question are one text
  kOneMessage,  // the description is the system message; shots and question are one message of the user
  kTurns,       // and every shot is a turn of user and assistant
};
template <>
struct EnumNames<PromptLayout> {
  static constexpr std::array values = {enum_name(PromptLayout::kText, "text"),
                                        enum_name(PromptLayout::kOneMessage, "message"),
                                        enum_name(PromptLayout::kTurns, "turns")};
};

struct ItemOptions {
  std::filesystem::path data_folder;
  int64_t limit = 0;  // first rows only; 0: all
  int64_t num_shots = 0;
  uint64_t seed = 1234;  // of the few-shot sampler
  PromptLayout layout = PromptLayout::kText;
  std::string system_prompt = {};  // stands before the description; not for the layout kText
};

// Shots of each row: `requested`, or the task's own number; 0 where there are no solved rows to show.
int64_t shots_of(const TaskConfig& task, std::optional<int64_t> requested);

// Reads the task's files and builds the items in file order. Throws DataError (file, line, field) for rows
// that do not fit, and for a few-shot split that is too small.
std::vector<EvaluationItem> build_items(const TaskConfig& task, const ItemOptions& options);

// The file that is scored: test if the task names one, else validation.
std::filesystem::path scored_file(const TaskConfig& task, const std::filesystem::path& data_folder);

}  // namespace smoe
