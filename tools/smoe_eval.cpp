// smoe-eval: scores a checkpoint on benchmarks and text at every active budget, and compares two such runs.
#include <CLI/CLI.hpp>

#include "command_line.h"
#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/core/log.h"
#include "smoe/core/tool.h"
#include "smoe/eval/comparison.h"
#include "smoe/eval/evaluator.h"
#include "smoe/eval/generation_overrides.h"
#include "smoe/eval/task_library.h"
#include "smoe/model/checkpoint_reader.h"
#include "smoe/model/device.h"
#include "smoe/model/segment_options.h"

namespace {

// The exit code of a run whose results lack tasks that were asked for.
constexpr int kIncomplete = 6;

struct Arguments {
  std::string checkpoint;
  std::vector<std::string> tasks;
  std::vector<std::string> texts;
  std::string data = ".";
  std::string task_folder = smoe::TaskLibrary::default_folder().string();
  std::string budgets = "all";
  std::string routing;
  std::string bos = "auto";
  std::string device = "cpu";
  std::string out;
  std::optional<int64_t> max_length;
  int64_t num_threads = 0;
  bool list_tasks = false;
  std::string chat_shots = "turns";
  std::string chat_template_file;
  bool chat_template = false;
  bool unsafe_code = false;
  bool discards_journal = false;
  smoe::GenerationOverrides generation;
  smoe::EvaluationOptions options;
};

struct CompareArguments {
  std::string a;
  std::string b;
  smoe::ComparisonOptions options;
};

void add_what_is_scored(CLI::App& app, Arguments& arguments) {
  app.add_option("--checkpoint", arguments.checkpoint,
                 "checkpoint folder, or run folder for its newest checkpoint");
  app.add_option("--tasks", arguments.tasks, "tasks, groups and text:FILE.jsonl, separated by commas")
      ->delimiter(',');
  app.add_option("--text", arguments.texts,
                 "JSONL files whose field `text` is scored: loss and bits per byte");
  app.add_option("--data", arguments.data, "folder with one folder a benchmark")->capture_default_str();
  app.add_option("--task-folder", arguments.task_folder, "folder with tasks/*.yaml and groups/*.yaml")
      ->capture_default_str();
  app.add_flag("--list-tasks", arguments.list_tasks, "print the names of tasks and groups, and stop");
  app.add_option("--limit", arguments.options.limit, "score the first N rows of each task; 0: all")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--num-fewshot", arguments.options.num_shots,
                 "solved rows before each question; default: the task's")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--seed", arguments.options.seed, "of the few-shot sampler")->capture_default_str();
}

void add_how_it_is_scored(CLI::App& app, Arguments& arguments) {
  app.add_option("--budgets", arguments.budgets, "all, or names or k of budgets, separated by commas")
      ->capture_default_str();
  app.add_option("--segment-length", arguments.options.segment_length,
                 "tokens a routing segment; default: as trained")
      ->check(CLI::PositiveNumber);
  app.add_option(
      "--routing", arguments.routing,
      "segments (as in pre-training; default) or last_prompt_token (as in generation; default with "
      "--chat-template)");
  app.add_option("--bos", arguments.bos,
                 "token before each text: auto (BOS if defined), always, never or eos")
      ->capture_default_str();
  app.add_option("--max-length", arguments.max_length,
                 "most tokens of a forward pass; default: data.sequence_length of the checkpoint, else 2048")
      ->check(CLI::PositiveNumber);
  app.add_option("--batch-tokens", arguments.options.batch_tokens,
                 "tokens of a batch; changes memory and speed only")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_flag("!--no-shared-prefixes", arguments.options.share_prefixes,
               "compute shots anew before each question; changes speed only");
  app.add_option("--threads", arguments.num_threads, "CPU threads; 0: all cores of this process")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--device", arguments.device, "cpu, cuda or cuda:N")->capture_default_str();
}

void add_generation_options(CLI::App& app, Arguments& arguments) {
  app.add_option("--max-new-tokens", arguments.options.max_new_tokens,
                 "most tokens of a generated answer, where the task allows more")
      ->check(CLI::PositiveNumber);
  app.add_option("--num-samples", arguments.generation.samples,
                 "generated answers to each row; default: the task's")
      ->check(CLI::PositiveNumber);
  app.add_option("--temperature", arguments.generation.temperature,
                 "of generated answers, 0: greedy; default: the task's")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--top-p", arguments.generation.top_p,
                 "share of the probability that answers are drawn from; default: the task's");
  app.add_option("--pass-at", arguments.generation.pass_at,
                 "the k of pass@k, separated by commas; default: the task's")
      ->delimiter(',');
  app.add_flag("--chat-template", arguments.chat_template,
               "each prompt is a dialogue in the template that the checkpoint was fine-tuned with");
  app.add_option("--chat-template-file", arguments.chat_template_file,
                 "the same with this template, for a checkpoint that holds none");
  app.add_option("--chat-shots", arguments.chat_shots,
                 "with --chat-template, solved rows are turns of the dialogue (turns) or stand in the user's "
                 "message (message)")
      ->capture_default_str();
  app.add_option("--system-prompt", arguments.options.system_prompt,
                 "with --chat-template: beginning of the system message");
  app.add_flag("--unsafe-code-execution", arguments.unsafe_code,
               "run generated programs without bubblewrap: they can read and delete your files");
}

void add_output_options(CLI::App& app, Arguments& arguments) {
  app.add_option("--out", arguments.out, "results as JSON; a table in Markdown is written beside it");
  app.add_option("--samples", arguments.options.samples,
                 "log of every row: a folder, or one file ending in .jsonl");
  app.add_option("--answers", arguments.options.answers,
                 "folder for answers that a judge will read; default: beside the results");
  app.add_option("--model-name", arguments.options.model_name,
                 "of these answers; default: the name of the checkpoint's folder");
  app.add_flag("--log-token-ids", arguments.options.log_token_ids, "token ids in the log of the rows");
  app.add_flag("--restart", arguments.discards_journal,
               "forget what an earlier, unfinished run with this --out has computed");
}

void list_tasks(const smoe::TaskLibrary& library) {
  for (const std::string& name : library.task_names()) fmt::print("{}\n", name);
  for (const std::string& name : library.group_names()) fmt::print("{} (group)\n", name);
}

int compare(const CompareArguments& arguments) {
  fmt::print("{}",
             smoe::to_terminal_table(smoe::compare_evaluations(arguments.a, arguments.b, arguments.options)));
  return 0;
}

void complete_chat_options(Arguments& arguments, const std::filesystem::path& checkpoint) {
  smoe::EvaluationOptions& options = arguments.options;
  const auto layout = smoe::enum_from_name<smoe::PromptLayout>(arguments.chat_shots);
  SMOE_CHECK(ConfigError, layout.has_value() && *layout != smoe::PromptLayout::kText,
             "--chat-shots {}; allowed are turns and message", arguments.chat_shots);
  options.chat_layout = *layout;
  arguments.chat_template = arguments.chat_template || !arguments.chat_template_file.empty();
  SMOE_CHECK(ConfigError, options.system_prompt.empty() || arguments.chat_template,
             "--system-prompt needs --chat-template: plain prompts have no messages");
  if (!arguments.chat_template) return;
  options.chat_template = arguments.chat_template_file.empty()
                              ? smoe::checkpoint_chat_template(checkpoint)
                              : smoe::load_chat_template(arguments.chat_template_file);
}

// The folder of a run says more than that of a step.
std::string model_name(const std::filesystem::path& checkpoint) {
  const std::filesystem::path folder = std::filesystem::absolute(checkpoint).lexically_normal();
  const std::string name = folder.filename().string();
  return name.starts_with("step-") ? folder.parent_path().filename().string() + "-" + name : name;
}

// Tasks by name. What is unknown or mistaken does not stop the others.
void select_tasks(Arguments& arguments, const smoe::TaskLibrary& library) {
  smoe::EvaluationOptions& options = arguments.options;
  std::vector<smoe::UnusableName> unusable;
  smoe::TaskSelection selection = library.select_usable(arguments.tasks, unusable);
  if (selection.tasks.empty()) throw smoe::ConfigError(unusable.front().message);
  for (const smoe::UnusableName& name : unusable) {
    SPDLOG_ERROR("{} is not scored: {}", name.name, name.message);
    options.failures.push_back({name.name, name.message});
  }
  for (smoe::TaskConfig& task : selection.tasks) smoe::override_generation(arguments.generation, task);
  options.tasks = std::move(selection.tasks);
  options.groups = std::move(selection.groups);
}

// Settings that follow from others.
void complete_options(Arguments& arguments, const std::filesystem::path& checkpoint) {
  smoe::EvaluationOptions& options = arguments.options;
  complete_chat_options(arguments, checkpoint);
  if (options.answers.empty()) {
    options.answers = std::filesystem::path(arguments.out).replace_extension(".answers");
  }
  if (options.model_name.empty()) options.model_name = model_name(checkpoint);
  if (arguments.routing.empty()) {
    options.routing =
        arguments.chat_template ? smoe::RoutingMode::kLastPromptToken : smoe::RoutingMode::kSegments;
  } else {
    options.routing = smoe::parse_routing_mode(arguments.routing);
  }
  if (arguments.unsafe_code) options.code.sandbox.mode = smoe::SandboxMode::kUnsafe;
  options.journal = arguments.out + ".journal";
  if (arguments.discards_journal) std::filesystem::remove_all(options.journal);
  options.checkpoint = checkpoint.string();
  // The checksums name every file of the checkpoint, so their hash stands for all of it.
  options.checkpoint_hash = smoe::sha256_of_file(checkpoint / "checksums.json");
}

int run(Arguments& arguments) {
  const smoe::TaskLibrary library(arguments.task_folder);
  if (arguments.list_tasks) {
    list_tasks(library);
    return 0;
  }
  SMOE_CHECK(ConfigError, !arguments.checkpoint.empty() && !arguments.out.empty(),
             "--checkpoint and --out are needed; --help explains all options");
  for (const std::string& text : arguments.texts) arguments.tasks.push_back("text:" + text);
  SMOE_CHECK(ConfigError, !arguments.tasks.empty(),
             "nothing to score; name tasks with --tasks or files with --text");
  // Otherwise hours of scoring could end with results that cannot be written.
  const auto table = std::filesystem::path(arguments.out).replace_extension(".md");
  SMOE_CHECK(ConfigError, table != std::filesystem::path(arguments.out),
             "--out {}: the table is written under this name; give the results, which are JSON, another one, "
             "for example {}",
             arguments.out, std::filesystem::path(arguments.out).replace_extension(".json").string());
  smoe::prepare_output_file(arguments.out);
  smoe::prepare_output_file(table);
  smoe::set_num_threads(arguments.num_threads);

  smoe::EvaluationOptions& options = arguments.options;
  select_tasks(arguments, library);
  options.data_folder = arguments.data;
  options.bos = smoe::parse_bos_policy(arguments.bos);

  const std::filesystem::path checkpoint = smoe::resolve_checkpoint(arguments.checkpoint);
  complete_options(arguments, checkpoint);
  const smoe::Model model = smoe::load_model(checkpoint, smoe::resolve_device(arguments.device));
  smoe::check_segment_options(model.config(), options.segment_length.has_value(), !arguments.routing.empty());
  const auto tokenizer = smoe::load_tokenizer(smoe::checkpoint_tokenizer(checkpoint));
  options.budgets = smoe::parse_budgets(model.config(), arguments.budgets);
  options.max_length = arguments.max_length.value_or(
      smoe::checkpoint_sequence_length(checkpoint).value_or(options.max_length));

  const smoe::EvaluationResults results = smoe::evaluate(model, *tokenizer, options);
  fmt::print("{}", smoe::to_terminal_table(results));
  smoe::write_file_atomically(arguments.out, smoe::to_json(results).dump(2) + "\n");
  smoe::write_file_atomically(table, smoe::to_markdown(results));
  SPDLOG_INFO("wrote {} and {}", arguments.out, table.string());
  // Not before: where they cannot be written, the same command makes them again from it.
  if (results.is_complete()) std::filesystem::remove_all(options.journal);
  return results.is_complete() ? 0 : kIncomplete;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Scores a checkpoint on benchmarks and text at every active budget.");
  Arguments arguments;
  add_what_is_scored(app, arguments);
  add_how_it_is_scored(app, arguments);
  add_generation_options(app, arguments);
  add_output_options(app, arguments);
  CompareArguments comparison;
  CLI::App* compare_command = app.add_subcommand("compare", "paired comparison of two results files");
  compare_command->add_option("A", comparison.a, "results of one run")->required();
  compare_command->add_option("B", comparison.b, "results of another run")->required();
  compare_command->add_option("--budget-a", comparison.options.budget_a, "the budget of A; default: by name");
  compare_command->add_option("--budget-b", comparison.options.budget_b, "the budget of B; default: by name");
  if (const auto status = smoe::parse_command_line(app, argc, argv)) return *status;
  if (compare_command->parsed()) return smoe::run_tool([&] { return compare(comparison); });
  return smoe::run_tool([&] { return run(arguments); });
}
