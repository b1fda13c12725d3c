#include "smoe/infer/chat_dialogue.h"

#include "smoe/core/error.h"

namespace smoe {

DialogueEncoder chat_dialogue(std::shared_ptr<const ChatRenderer> renderer) {
  return [renderer = std::move(renderer)](const std::vector<DialogueTurn>& turns) {
    Conversation messages;
    for (const DialogueTurn& turn : turns) {
      const std::optional<ChatRole> role = enum_from_name<ChatRole>(turn.role);
      SMOE_CHECK(DataError, role.has_value(), "unknown role `{}`; allowed are system, user and assistant",
                 turn.role);
      messages.push_back({*role, turn.text});
    }
    ChatExample dialogue = renderer->open_dialogue(messages);
    return DialoguePrompt{std::move(dialogue.tokens), std::move(dialogue.responses)};
  };
}

void answer_like_training(const ChatRenderer& renderer, GenerationRequest& request) {
  const ChatStop& stop = renderer.stop();
  request.routing = RoutingMode::kLastPromptToken;
  request.continues_text = false;
  request.stop_ids.insert(request.stop_ids.end(), stop.tokens.begin(), stop.tokens.end());
  request.stops.insert(request.stops.end(), stop.texts.begin(), stop.texts.end());
  request.ending = stop.ending;
}

}  // namespace smoe
