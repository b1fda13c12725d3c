// Calls of functions: how they are read from a generated answer, and how they are compared with the right
// ones. The comparison is that of MMAU's tool execution (apple/axlearn, open_api/metrics). tool_dialogue.h
// makes the prompts.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "smoe/core/config.h"
#include "smoe/eval/rows.h"

namespace smoe {

// How functions and their calls are written in texts. Endpoints hide this behind their interface, so no
// benchmark prescribes it.
struct ToolCallConfig {
  std::string instructions;
  std::string open = "<tool_call>";
  std::string close = "</tool_call>";
  std::string result_open = "<tool_response>";
  std::string result_close = "</tool_response>";
};
template <class Visitor>
void visit_fields(Visitor& visitor, ToolCallConfig& config) {
  visitor.field("instructions", config.instructions,
                "end of the system message; {tools} becomes the functions, one JSON object a line");
  visitor.field("open", config.open, "stands before a call, a JSON object with name and arguments");
  visitor.field("close", config.close, "stands after a call");
  visitor.field("result_open", config.result_open, "stands before what a function gave back");
  visitor.field("result_close", config.result_close, "stands after what a function gave back");
}

struct ToolCall {
  std::string name;
  nlohmann::json arguments;  // usually an object
  bool is_readable = true;   // false: the text of the call is no JSON with a name and arguments
};

struct ToolMessage {
  std::string content;
  std::vector<ToolCall> calls;
};

// The text before the first call, and the calls; an unfinished last call counts. Without marks, an answer
// that is nothing but the JSON of one call or of a list of calls counts as well, also inside a code fence.
ToolMessage read_tool_answer(const ToolCallConfig& config, std::string_view answer);

// What one answer is worth. All counts are of predicted calls, except `expected`.
struct ToolVerdict {
  bool is_right = false;     // the same text, or the same calls by the rules of the row
  bool makes_call = false;   // of the answer
  int64_t expected = 0;      // calls of the right answer
  int64_t named = 0;         // calls of a function that is still expected
  int64_t strict = 0;        // with exactly the arguments of an expected one
  int64_t lenient = 0;       // texts without case, punctuation and the stop words at their ends
  int64_t bag_of_words = 0;  // texts that hold all words of the expected ones
};

// The right answer to a row: `target_message`, an assistant's message in the format of OpenAI, and
// `target_message_match_rules`, if there are any.
class ToolTarget {
 public:
  // Throws DataError that names the row and the key.
  explicit ToolTarget(const Row& row);

  ToolVerdict compare(const ToolMessage& answer) const;

 private:
  bool are_the_same_calls(const std::vector<ToolCall>& calls) const;
  bool matches(const ToolCall& call, size_t expected) const;

  ToolMessage message_;
  std::vector<nlohmann::json> rules_;  // one a call: the rules of its arguments by name
};

// The calls of an OpenAI message. Throws DataError, beginning with `where`.
std::vector<ToolCall> parse_tool_calls(const nlohmann::json& message, const std::string& where);

// The content of an OpenAI message as text: a text, a list of texts, JSON, or nothing.
std::string tool_message_text(const nlohmann::json& message, const std::string& where);

// The JSON text of a call as it is put into prompts.
std::string tool_call_text(const ToolCall& call);

}  // namespace smoe
