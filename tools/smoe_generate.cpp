// smoe-generate: continues prompts with a checkpoint at any budget, from the command line, a file or a
// terminal.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <numeric>

#include "command_line.h"
#include "smoe/core/error.h"
#include "smoe/core/tool.h"
#include "smoe/infer/chat_dialogue.h"
#include "smoe/infer/generation_console.h"
#include "smoe/infer/generation_report.h"
#include "smoe/infer/generator.h"
#include "smoe/infer/prompts.h"
#include "smoe/infer/streaming_model.h"
#include "smoe/model/checkpoint_reader.h"
#include "smoe/model/device.h"
#include "smoe/model/segment_options.h"
#include "streaming_arguments.h"

namespace {

struct Arguments {
  std::string checkpoint;
  std::string budget;
  std::optional<std::string> prompt;
  std::string prompt_file;
  std::string routing = "auto";
  std::string chat_template;
  std::string system;
  bool chat = false;
  std::string bos = "auto";
  std::string device = "cpu";
  std::string weights = "fp32";
  std::optional<int64_t> segment_length;
  int64_t num_samples = 1;
  int64_t num_threads = 0;
  bool stats = false;
  bool json = false;
  smoe::GenerationRequest request;
  smoe::SessionLimits limits;
  smoe::StreamingArguments streaming;
};

void add_prompt_options(CLI::App& app, Arguments& arguments) {
  app.add_option("--checkpoint", arguments.checkpoint,
                 "checkpoint folder, or run folder for its newest checkpoint");
  auto* prompt = app.add_option("--prompt", arguments.prompt, "text to continue");
  app.add_option("--prompt-file", arguments.prompt_file,
                 "one prompt a line, or *.jsonl with the field `prompt`; without a prompt: a dialogue")
      ->excludes(prompt);
  app.add_flag("--chat", arguments.chat,
               "each prompt is a user's message to a fine-tuned model, not a text to continue");
  app.add_option("--template", arguments.chat_template,
                 "YAML of the chat template of dialogues and --chat; default: the checkpoint's");
  app.add_option("--system", arguments.system, "system message before dialogues and --chat");
  app.add_option("--bos", arguments.bos,
                 "token before each prompt: auto (BOS if defined), always, never or eos")
      ->capture_default_str();
  app.add_option("--context-limit", arguments.request.context_limit,
                 "most tokens of prompt and answer; default: data.sequence_length of the checkpoint")
      ->check(CLI::PositiveNumber);
}

void add_model_options(CLI::App& app, Arguments& arguments) {
  app.add_option("--budget", arguments.budget, "name or k of the active size, or all");
  app.add_option("--segment-length", arguments.segment_length,
                 "tokens between two choices of experts; default: as trained")
      ->check(CLI::PositiveNumber);
  app.add_option(
         "--routing", arguments.routing,
         "segments (as in pre-training) or last_prompt_token (as in fine-tuning); auto: what the template "
         "of a dialogue was trained with, segments without one")
      ->capture_default_str();
  app.add_option("--threads", arguments.num_threads, "CPU threads; 0: all cores of this process")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--device", arguments.device, "cpu, cuda or cuda:N")->capture_default_str();
  app.add_option("--weights", arguments.weights,
                 "how weights in memory are rounded and read while decoding on the CPU")
      ->capture_default_str()
      ->check(CLI::IsMember({"fp32", "bf16", "int8"}));
  app.add_option("--batch-rows", arguments.limits.max_rows, "answers computed at the same time")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
}

void add_sampling_options(CLI::App& app, Arguments& arguments) {
  smoe::SamplingConfig& sampling = arguments.request.sampling;
  app.add_option("--max-new-tokens", arguments.request.max_new_tokens, "most tokens of an answer")
      ->capture_default_str();
  app.add_option("--temperature", sampling.temperature, "0: greedy")->capture_default_str();
  app.add_option("--top-k", sampling.top_k, "draw from the k most probable tokens; 0: all")
      ->capture_default_str();
  app.add_option("--top-p", sampling.top_p, "draw from the most probable tokens that hold this share")
      ->capture_default_str();
  app.add_option("--min-p", sampling.min_p,
                 "draw from tokens at least this fraction as probable as the first")
      ->capture_default_str();
  app.add_option("--seed", sampling.seed, "of the first sample of each prompt")->capture_default_str();
  app.add_option("--num-samples", arguments.num_samples, "answers to each prompt and budget")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--stop", arguments.request.stops, "strings that end an answer");
  app.add_flag("--stats", arguments.stats, "speed and refreshes, on standard error");
  app.add_flag("--json", arguments.json, "one JSON object an answer");
}

// A dense model has no budgets to choose from; the index is then not looked at.
std::vector<int64_t> chosen_budgets(const smoe::ModelConfig& config, const std::string& text) {
  if (config.architecture == smoe::Architecture::kDense) {
    SMOE_CHECK(ConfigError, text.empty() || text == "all",
               "--budget {}: a dense model has one size; leave the option out", text);
    return {0};
  }
  if (text == "all" || (text.empty() && config.budgets.size() == 1)) {
    std::vector<int64_t> all(config.budgets.size());
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  std::string names;
  for (const smoe::BudgetConfig& budget : config.budgets) names += budget.name + ", ";
  SMOE_CHECK(ConfigError, !text.empty(), "--budget is missing: this model has {}or all of them with `all`",
             names);
  return {smoe::find_budget(config.budgets, text)};
}

struct LabelledRequest {
  smoe::GenerationRequest request;
  std::string prompt;
  std::string budget;
  int64_t sample = 0;
};

// The template of dialogues: the named one, else the checkpoint's; null where there is none.
std::shared_ptr<const smoe::ChatRenderer> chat_renderer(const Arguments& arguments,
                                                        const std::filesystem::path& checkpoint,
                                                        const smoe::Tokenizer& tokenizer) {
  if (!arguments.chat_template.empty()) {
    return std::make_shared<smoe::ChatRenderer>(smoe::load_chat_template(arguments.chat_template), tokenizer);
  }
  const bool has_template = std::filesystem::exists(checkpoint / smoe::kChatTemplateFile);
  SMOE_CHECK(
      ConfigError, has_template || (!arguments.chat && arguments.system.empty()),
      "{}: --chat and --system need a chat template, which this checkpoint does not have; name one with "
      "--template",
      checkpoint.string());
  if (!has_template) return nullptr;
  return std::make_shared<smoe::ChatRenderer>(smoe::checkpoint_chat_template(checkpoint), tokenizer);
}

// Dialogues begin with the system message, if there is one.
smoe::DialogueEncoder with_system(smoe::DialogueEncoder encoder, const std::string& system) {
  if (system.empty()) return encoder;
  return [encoder = std::move(encoder), system](const std::vector<smoe::DialogueTurn>& turns) {
    std::vector<smoe::DialogueTurn> all = {{"system", system}};
    all.insert(all.end(), turns.begin(), turns.end());
    return encoder(all);
  };
}

using PromptEncoder = std::function<std::vector<int32_t>(const std::string& prompt)>;

std::vector<LabelledRequest> make_requests(const Arguments& arguments,
                                           const std::vector<std::string>& prompts,
                                           const std::vector<int64_t>& budgets,
                                           const smoe::ModelConfig& config, const PromptEncoder& encode) {
  std::vector<LabelledRequest> requests;
  for (const std::string& prompt : prompts) {
    for (const int64_t budget : budgets) {
      for (int64_t sample = 0; sample < arguments.num_samples; ++sample) {
        LabelledRequest labelled{arguments.request, prompt, "", sample};
        labelled.request.prompt = encode(prompt);
        labelled.request.budget = budget;
        if (sample > 0) {
          labelled.request.sampling.seed =
              smoe::mix_seeds(arguments.request.sampling.seed, static_cast<uint64_t>(sample));
        }
        if (config.architecture != smoe::Architecture::kDense) {
          labelled.budget = config.budgets[static_cast<size_t>(budget)].name;
        }
        requests.push_back(std::move(labelled));
      }
    }
  }
  return requests;
}

void print_result(const Arguments& arguments, const LabelledRequest& asked,
                  const smoe::GenerationResult& result, bool with_header) {
  if (arguments.json) {
    nlohmann::json value = smoe::result_to_json(result);
    value["prompt"] = asked.prompt;
    value["budget"] = asked.budget;
    value["sample"] = asked.sample;
    fmt::print("{}\n", value.dump());
    return;
  }
  if (with_header) {
    // An answer does not go on where the message ends.
    fmt::print("--- {}{}, sample {} ({})\n{}{}{}\n", asked.budget.empty() ? "" : "budget ", asked.budget,
               asked.sample + 1, smoe::finish_reason_name(result.finish), asked.prompt,
               arguments.chat ? "\n" : "", result.text);
  }
}

int answer_prompts(const Arguments& arguments, std::vector<LabelledRequest> asked,
                   smoe::Generator& generator) {
  // Answers that are computed together cannot be shown together; a single one is shown while it grows.
  const bool streams = asked.size() == 1 && !arguments.json;
  std::vector<smoe::GenerationRequest> requests;
  for (const LabelledRequest& labelled : asked) requests.push_back(labelled.request);
  if (streams) {
    requests.front().on_token = [](const smoe::TokenEvent& event) {
      std::cout << event.text << std::flush;
      return true;
    };
  }
  const std::vector<smoe::GenerationResult> results = generator.generate(std::move(requests));
  if (streams) std::cout << std::endl;
  int status = 0;
  for (size_t i = 0; i < results.size(); ++i) {
    print_result(arguments, asked[i], results[i], !streams);
    if (results[i].finish != smoe::FinishReason::kFailed) continue;
    const smoe::DataError error(results[i].error);
    fmt::print(stderr, "error: {}\n", error.what());
    status = error.exit_code();
  }
  return status;
}

// The model, and its store of experts where they are on disk.
struct LoadedModel {
  std::filesystem::path folder;  // has config and tokenizer
  smoe::Model model;
  std::shared_ptr<smoe::ExpertStore> experts;
};

LoadedModel load(const Arguments& arguments) {
  SMOE_CHECK(ConfigError, arguments.checkpoint.empty() != arguments.streaming.package.empty(),
             "give either --checkpoint or --streaming, not {}",
             arguments.checkpoint.empty() ? "neither" : "both");
  if (arguments.streaming.package.empty()) {
    const std::filesystem::path checkpoint = smoe::resolve_checkpoint(arguments.checkpoint);
    return {checkpoint, smoe::load_model(checkpoint, smoe::resolve_device(arguments.device)), nullptr};
  }
  SMOE_CHECK(ConfigError, arguments.device == "cpu", "--device {}: streamed experts run on the cpu only",
             arguments.device);
  const smoe::StreamingArguments& options = arguments.streaming;
  auto streaming =
      smoe::open_streaming_model({options.package, options.memory_limit_bytes(), options.store_config()});
  return {options.package, std::move(streaming.model), std::move(streaming.experts)};
}

void print_stats(const smoe::Generator& generator, const LoadedModel& loaded) {
  fmt::print(stderr, "{}\n", smoe::describe_stats(generator.stats()));
  if (loaded.experts) {
    fmt::print(stderr, "{}", smoe::streaming_report(*loaded.experts, generator.stats().new_tokens));
  }
}

// Options that would change nothing are mistakes.
void check_dialogue_options(const Arguments& arguments, bool is_dialogue) {
  SMOE_CHECK(ConfigError, is_dialogue || (arguments.chat_template.empty() && arguments.system.empty()),
             "--{} is for dialogues: with --chat each prompt is a user's message, without it a text to "
             "continue as it stands",
             arguments.chat_template.empty() ? "system" : "template");
  if (arguments.prompt) smoe::check_utf8_text(*arguments.prompt, "--prompt");
  smoe::check_utf8_text(arguments.system, "--system");
}

int run(Arguments& arguments) {
  smoe::set_num_threads(arguments.num_threads);
  smoe::check_sampling(arguments.request.sampling);
  const bool is_dialogue = arguments.chat || (!arguments.prompt && arguments.prompt_file.empty());
  check_dialogue_options(arguments, is_dialogue);
  LoadedModel loaded = load(arguments);
  if (arguments.weights != "fp32") {
    SMOE_CHECK(ConfigError, loaded.model.device().is_cpu(), "--weights {}: for --device cpu only, found {}",
               arguments.weights, arguments.device);
    loaded.model.encode_weights(smoe::enum_from_name<smoe::ExpertEncoding>(arguments.weights).value());
  }
  const std::filesystem::path& checkpoint = loaded.folder;
  const smoe::Model& model = loaded.model;
  const auto tokenizer = smoe::load_tokenizer(smoe::checkpoint_tokenizer(checkpoint));
  const std::vector<int64_t> budgets = chosen_budgets(model.config(), arguments.budget);
  smoe::check_segment_options(model.config(), arguments.segment_length.has_value(),
                              arguments.routing != "auto");

  smoe::GenerationRequest& request = arguments.request;
  request.segment_length = arguments.segment_length.value_or(model.config().routing.segment_length);
  request.stop_ids = smoe::default_stop_ids(*tokenizer);
  request.continues_text = true;
  if (!request.context_limit) request.context_limit = smoe::checkpoint_sequence_length(checkpoint);
  const auto renderer = is_dialogue ? chat_renderer(arguments, checkpoint, *tokenizer) : nullptr;
  if (renderer) smoe::answer_like_training(*renderer, request);
  if (arguments.routing != "auto") request.routing = smoe::parse_routing_mode(arguments.routing);
  const smoe::BosPolicy bos = smoe::parse_bos_policy(arguments.bos);
  SMOE_CHECK(ConfigError, !renderer || bos == smoe::BosPolicy::kAuto,
             "--bos {}: the chat template says itself what a dialogue begins with (its key bos, found {})",
             arguments.bos, smoe::bos_policy_name(renderer->chat_template().bos));
  const smoe::DialogueEncoder dialogue = with_system(
      renderer ? smoe::chat_dialogue(renderer) : smoe::plain_dialogue(*tokenizer, bos), arguments.system);
  if (loaded.experts) smoe::fit_to_slots(*loaded.experts, model.config(), arguments.limits);
  smoe::Generator generator(model, *tokenizer, arguments.limits);

  std::vector<std::string> prompts;
  if (!arguments.prompt_file.empty()) prompts = smoe::read_prompts(arguments.prompt_file);
  if (arguments.prompt) prompts.push_back(*arguments.prompt);
  if (!prompts.empty()) {
    const PromptEncoder encode = [&](const std::string& prompt) {
      if (!arguments.chat) return smoe::encode_prompt(*tokenizer, prompt, bos);
      return dialogue({{"user", prompt}}).ids;
    };
    const int status = answer_prompts(
        arguments, make_requests(arguments, prompts, budgets, model.config(), encode), generator);
    if (arguments.stats) print_stats(generator, loaded);
    return status;
  }
  SMOE_CHECK(ConfigError, budgets.size() == 1 && arguments.num_samples == 1 && !arguments.json,
             "a dialogue has one budget, one sample and no --json; give --prompt or --prompt-file for more");
  request.budget = budgets.front();
  smoe::GenerationConsole console(generator, model.config(), request, dialogue, std::cout);
  console.run(std::cin, isatty(STDIN_FILENO) != 0 ? "> " : "");
  if (arguments.stats) print_stats(generator, loaded);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Continues prompts with a checkpoint, at any active budget. Without a prompt: a dialogue.");
  Arguments arguments;
  add_prompt_options(app, arguments);
  add_model_options(app, arguments);
  arguments.streaming.add_to(app);
  add_sampling_options(app, arguments);
  if (const auto status = smoe::parse_command_line(app, argc, argv)) return *status;
  return smoe::run_tool([&] { return run(arguments); });
}
