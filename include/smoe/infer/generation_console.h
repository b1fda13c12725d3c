// A dialogue with a model on a terminal: a line is a turn, a line that begins with / is a command. Budget and
// segment length may change between turns.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "smoe/infer/generator.h"
#include "smoe/infer/prompts.h"

namespace smoe {

class GenerationConsole {
 public:
  // `settings`: everything of a request but the prompt and the callback. `out` receives answers and messages;
  // it and the generator must outlive the console.
  GenerationConsole(Generator& generator, const ModelConfig& config, GenerationRequest settings,
                    DialogueEncoder encoder, std::ostream& out);

  // Takes one line; false after /quit. What is wrong with a command or a turn is printed, and the dialogue
  // goes on as if the line had not been there.
  bool handle(const std::string& line);
  // Handles lines until /quit or the end of `in`; `marker` stands before each.
  void run(std::istream& in, const std::string& marker);

 private:
  void command(const std::string& name, const std::string& argument);
  void answer(const std::string& text);
  void set_segment_length(const std::string& argument);

  Generator& generator_;
  const ModelConfig& config_;
  GenerationRequest settings_;
  DialogueEncoder encoder_;
  std::ostream& out_;
  std::vector<DialogueTurn> turns_;
};

}  // namespace smoe
