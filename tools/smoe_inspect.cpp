// smoe-inspect: looks into a checkpoint and its routing masks, and writes its logits so that other
// implementations can be compared.
#include <CLI/CLI.hpp>

#include "command_line.h"
#include "smoe/analysis/mask_study.h"
#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/core/log.h"
#include "smoe/core/tool.h"
#include "smoe/model/checkpoint_reader.h"
#include "smoe/model/device.h"
#include "smoe/model/inspect.h"
#include "smoe/model/safetensors.h"
#include "smoe/routing/budgets.h"

namespace {

struct LogitsArguments {
  std::string checkpoint;
  std::string tokens;
  std::string budget;
  std::optional<int64_t> segment_length;
  std::string out;
  std::string device = "cpu";
  int64_t num_threads = 0;
};

void add_logits_options(CLI::App& command, LogitsArguments& arguments) {
  command.add_option("--checkpoint", arguments.checkpoint, "checkpoint or run folder")->required();
  command.add_option("--tokens", arguments.tokens, "JSON list of lists of token ids, all of one length")
      ->required();
  command.add_option("--budget", arguments.budget, "name or k of an active budget (not for dense models)");
  command.add_option("--segment-length", arguments.segment_length, "tokens a segment; default: the config's");
  command
      .add_option("--out", arguments.out,
                  "safetensors file: logits [B,T,V] float32, routing [segments,L,E] uint8")
      ->required();
  command.add_option("--device", arguments.device, "cpu, cuda or cuda:N")->capture_default_str();
  command.add_option("--threads", arguments.num_threads, "CPU threads; 0: all cores of this process")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
}

void write_logits(const LogitsArguments& arguments) {
  smoe::set_num_threads(arguments.num_threads);
  const smoe::Model model = smoe::load_model(arguments.checkpoint, smoe::resolve_device(arguments.device));
  smoe::LogitsRequest request;
  request.tokens_BT = smoe::read_token_rows(arguments.tokens, model.config().vocab_size);
  request.budget = arguments.budget;
  request.segment_length = arguments.segment_length;
  const smoe::LogitsResult result = smoe::compute_logits(model, request);
  smoe::TensorList tensors = {{"logits", result.logits_BTV}};
  if (result.routing_QLE.defined()) {
    tensors.emplace_back("routing", result.routing_QLE);
  }
  smoe::write_safetensors(arguments.out, tensors);
  for (const auto& [name, tensor] : tensors) {
    fmt::print("{}: {} [{}]\n", arguments.out, name, fmt::join(tensor.sizes(), ", "));
  }
}

struct MaskArguments {
  std::string checkpoint;
  std::string texts;
  std::vector<std::string> budgets;
  std::optional<int64_t> segment_length;
  std::optional<int64_t> max_tokens;
  std::string out;
  std::string device = "cpu";
  int64_t num_threads = 0;
  std::string plots = "svg";
  smoe::MaskStudyOptions options;
};

void add_mask_options(CLI::App& command, MaskArguments& arguments) {
  command.add_option("--checkpoint", arguments.checkpoint, "checkpoint or run folder")->required();
  command
      .add_option("--texts", arguments.texts,
                  "JSON Lines with `text` and `domain`, or `name` and `parts` (tools/make_mask_cases.py)")
      ->required();
  command.add_option("--budgets", arguments.budgets, "names or k, separated by commas; default: all")
      ->delimiter(',');
  command.add_option("--segment-length", arguments.segment_length, "tokens a segment; default: the config's")
      ->check(CLI::PositiveNumber);
  command
      .add_option("--hit-rate-lengths", arguments.options.hit_rate_lengths,
                  "segment lengths at which hit rates are measured")
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  command
      .add_option(
          "--max-tokens", arguments.max_tokens,
          "of a text; what is longer is cut. Default: the sequence length of the training, beyond which "
          "masks say little about the model")
      ->check(CLI::PositiveNumber);
  command.add_option("--permutations", arguments.options.permutations, "of the test of significance")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command.add_option("--seed", arguments.options.seed, "of the permutations")->capture_default_str();
  command.add_option("--out", arguments.out, "folder that receives masks.json and the plots")->required();
  command.add_option("--plots", arguments.plots, "svg, png or none; plots need gnuplot")
      ->capture_default_str()
      ->check(CLI::IsMember({"svg", "png", "none"}));
  command.add_option("--device", arguments.device, "cpu, cuda or cuda:N")->capture_default_str();
  command.add_option("--threads", arguments.num_threads, "CPU threads; 0: all cores of this process")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
}

void write_masks(MaskArguments& arguments) {
  smoe::set_num_threads(arguments.num_threads);
  const std::filesystem::path checkpoint = smoe::resolve_checkpoint(arguments.checkpoint);
  const smoe::Model model = smoe::load_model(checkpoint, smoe::resolve_device(arguments.device));
  const auto tokenizer = smoe::load_tokenizer(smoe::checkpoint_tokenizer(checkpoint));
  const std::vector<smoe::TopicText> texts = smoe::read_topic_texts(arguments.texts);
  const std::filesystem::path folder = arguments.out;
  smoe::prepare_output_file(folder / "masks.json");
  smoe::MaskStudyOptions& options = arguments.options;
  options.segment_length = arguments.segment_length.value_or(model.config().routing.segment_length);
  options.max_tokens = arguments.max_tokens.value_or(
      smoe::checkpoint_sequence_length(checkpoint).value_or(options.max_tokens));
  if (options.hit_rate_lengths.empty()) options.hit_rate_lengths = {8, 16, 32, 64, 128};
  for (const std::string& budget : arguments.budgets) {
    options.budgets.push_back(smoe::find_budget(model.config().budgets, budget));
  }
  for (size_t i = 0; arguments.budgets.empty() && i < model.config().budgets.size(); ++i) {
    options.budgets.push_back(static_cast<int64_t>(i));
  }
  const smoe::MaskStudy study = smoe::study_masks(model, *tokenizer, texts, options);
  fmt::print("{}", smoe::describe(study, options));
  smoe::write_file_atomically(folder / "masks.json", smoe::to_json(study, options).dump() + "\n");
  if (arguments.plots != "none") smoe::plot_masks(study, options, folder, arguments.plots);
  SPDLOG_INFO("wrote {}", (folder / "masks.json").string());
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Looks into a checkpoint.");
  app.require_subcommand(1);
  LogitsArguments logits;
  CLI::App* logits_command =
      app.add_subcommand("logits", "writes the logits and the routing of given tokens");
  add_logits_options(*logits_command, logits);
  MaskArguments masks;
  CLI::App* masks_command = app.add_subcommand(
      "masks", "which experts are chosen for texts: similarity by topic, load, hit rates, nesting");
  add_mask_options(*masks_command, masks);
  std::string folder;
  CLI::App* checkpoint_command = app.add_subcommand(
      "checkpoint", "verifies the checksums and lists step, config hash, budgets and tensors");
  checkpoint_command->add_option("folder", folder, "checkpoint or run folder")->required();
  if (const auto status = smoe::parse_command_line(app, argc, argv)) return *status;

  return smoe::run_tool([&] {
    if (logits_command->parsed()) {
      write_logits(logits);
    } else if (masks_command->parsed()) {
      write_masks(masks);
    } else {
      fmt::print("{}", smoe::describe_checkpoint(folder));
    }
    return 0;
  });
}
