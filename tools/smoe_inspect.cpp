// smoe-inspect: looks into a checkpoint, and writes its logits so that other implementations can be compared.
#include <CLI/CLI.hpp>

#include "smoe/core/error.h"
#include "smoe/core/tool.h"
#include "smoe/model/checkpoint_reader.h"
#include "smoe/model/device.h"
#include "smoe/model/inspect.h"
#include "smoe/model/safetensors.h"

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

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Looks into a checkpoint.");
  app.require_subcommand(1);
  LogitsArguments logits;
  CLI::App* logits_command =
      app.add_subcommand("logits", "writes the logits and the routing of given tokens");
  add_logits_options(*logits_command, logits);
  std::string folder;
  CLI::App* checkpoint_command = app.add_subcommand(
      "checkpoint", "verifies the checksums and lists step, config hash, budgets and tensors");
  checkpoint_command->add_option("folder", folder, "checkpoint or run folder")->required();
  CLI11_PARSE(app, argc, argv);

  return smoe::run_tool([&] {
    if (logits_command->parsed()) {
      write_logits(logits);
    } else {
      fmt::print("{}", smoe::describe_checkpoint(folder));
    }
    return 0;
  });
}
