// Dialogues rendered with the chat template of a fine-tuned checkpoint.
#pragma once

#include <memory>

#include "smoe/data/chat_renderer.h"
#include "smoe/infer/generation.h"
#include "smoe/infer/prompts.h"

namespace smoe {

// The tokens that training put before an answer, and where the earlier answers stand, so that each turn is
// routed as in training. The last turn must be the user's (DataError). The tokenizer of `renderer` must
// outlive the function.
DialogueEncoder chat_dialogue(std::shared_ptr<const ChatRenderer> renderer);

// Makes `request` answer as the model was fine-tuned: experts by the last prompt token, an end where the
// template ends an answer, and a text that stands by itself.
void answer_like_training(const ChatRenderer& renderer, GenerationRequest& request);

}  // namespace smoe
