#include "smoe/infer/generation_console.h"

#include <charconv>
#include <iostream>

#include "smoe/core/error.h"
#include "smoe/infer/generation_report.h"

namespace smoe {
namespace {

constexpr const char* kHelp =
    "/budget NAME   answer with this budget (name or k) from now on\n"
    "/segment S     choose experts every S tokens from now on\n"
    "/reset         forget the dialogue\n"
    "/stats         speed of all answers so far\n"
    "/quit          end\n";

}  // namespace

GenerationConsole::GenerationConsole(Generator& generator, const ModelConfig& config,
                                     GenerationRequest settings, DialogueEncoder encoder, std::ostream& out)
    : generator_(generator),
      config_(config),
      settings_(std::move(settings)),
      encoder_(std::move(encoder)),
      out_(out) {}

bool GenerationConsole::handle(const std::string& line) {
  try {
    if (!line.starts_with('/')) {
      if (!line.empty()) answer(line);
      return true;
    }
    const size_t space = line.find(' ');
    const std::string name = line.substr(0, space);
    if (name == "/quit") return false;
    command(name, space == std::string::npos ? "" : line.substr(space + 1));
  } catch (const Error& error) {
    // A person at a terminal corrects the line; losing the dialogue would not help.
    out_ << "error: " << error.what() << "\n";
  }
  return true;
}

void GenerationConsole::run(std::istream& in, const std::string& marker) {
  std::string line;
  while (out_ << marker << std::flush && std::getline(in, line) && handle(line)) {
  }
}

void GenerationConsole::command(const std::string& name, const std::string& argument) {
  if (name == "/budget") {
    SMOE_CHECK(ConfigError, config_.architecture != Architecture::kDense,
               "a dense model has one size and no budgets");
    settings_.budget = find_budget(config_.budgets, argument);
    out_ << "budget " << config_.budgets[static_cast<size_t>(settings_.budget)].name << "\n";
  } else if (name == "/segment") {
    set_segment_length(argument);
  } else if (name == "/reset") {
    turns_.clear();
    out_ << "the dialogue is empty\n";
  } else if (name == "/stats") {
    out_ << describe_stats(generator_.stats()) << "\n";
  } else if (name == "/help") {
    out_ << kHelp;
  } else {
    throw ConfigError(fmt::format("unknown command `{}`; there are\n{}", name, kHelp));
  }
}

void GenerationConsole::set_segment_length(const std::string& argument) {
  int64_t length = 0;
  const char* end = argument.data() + argument.size();
  const auto parsed = std::from_chars(argument.data(), end, length);
  SMOE_CHECK(ConfigError, parsed.ec == std::errc() && parsed.ptr == end && length >= 1,
             "`/segment {}`: the segment length is a whole number from 1 on, for example /segment 32",
             argument);
  settings_.segment_length = length;
  out_ << "segment length " << length << "\n";
}

void GenerationConsole::answer(const std::string& text) {
  check_utf8_text(text, "this message");
  std::vector<DialogueTurn> turns = turns_;
  turns.push_back({"user", text});
  GenerationRequest request = settings_;
  DialoguePrompt prompt = encoder_(turns);
  request.prompt = std::move(prompt.ids);
  request.responses = std::move(prompt.responses);
  request.on_token = [this](const TokenEvent& event) {
    out_ << event.text << std::flush;
    return true;
  };
  SMOE_CHECK(
      DataError, !request.context_limit || std::ssize(request.prompt) < *request.context_limit,
      "the dialogue has {} tokens, but with a context limit of {} it may have {} at most; /reset begins a "
      "new one",
      request.prompt.size(), request.context_limit.value_or(0), request.context_limit.value_or(1) - 1);
  const GenerationResult result = generator_.generate(std::move(request));
  out_ << "\n";
  if (result.finish == FinishReason::kFailed) throw DataError(result.error);
  turns.push_back({"assistant", result.text});
  turns_ = std::move(turns);
}

}  // namespace smoe
