// The dialogue that a tool-use row asks to continue, in messages that any chat template can render.
#pragma once

#include <string>

#include "smoe/data/chat_message.h"
#include "smoe/eval/rows.h"
#include "smoe/eval/tool_calls.h"

namespace smoe {

// From `messages` and `tools` of the row, in the format of OpenAI: the functions become part of the system
// message, calls and results become texts between marks, and neighbours of one role become one message. The
// last message is the user's; results of functions stand there too. Throws DataError that names the row.
Conversation tool_dialogue(const ToolCallConfig& config, const Row& row);

// The dialogue as plain text, for models without a chat template: `User: ...` and `Assistant: ...`, ending in
// `Assistant:`.
std::string plain_dialogue(const Conversation& dialogue);

}  // namespace smoe
