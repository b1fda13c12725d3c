// smoe-data: trains tokenizers, makes and looks into token stores, and shows dialogues as they are trained.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "command_line.h"
#include "smoe/core/available_cores.h"
#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/core/progress.h"
#include "smoe/core/tool.h"
#include "smoe/data/chat_preview.h"
#include "smoe/data/chat_row_source.h"
#include "smoe/data/document_reader.h"
#include "smoe/data/store_report.h"
#include "smoe/data/tokenize.h"
#include "smoe/data/tokenizer_training.h"
#include "smoe/data/training_data.h"
#include "smoe/train/train_config.h"

namespace {

using Body = std::function<int()>;

constexpr const char* kInputHelp =
    "text files in this order: *.jsonl, *.ndjson (one JSON object a line), *.txt (one "
    "document a file), each also with .zst";

void print_summary(const smoe::TokenStoreInfo& info) {
  fmt::print("documents {}, tokens {}, {:.3f} bytes per token\n", info.documents, info.tokens,
             info.bytes_per_token());
}

struct TrainTokenizerArguments {
  std::vector<std::filesystem::path> inputs;
  std::filesystem::path output;
  std::string text_key = "text";
  std::string model = "bpe";
  bool overwrite = false;
  smoe::TokenizerTrainingOptions options;
};

// The texts of all files as one source.
smoe::DocumentSource documents_of(std::shared_ptr<smoe::DocumentReader> reader, std::string text_key) {
  return [reader, text_key](std::string& text) {
    smoe::DocumentRecord record;
    if (!reader->next(record)) {
      return false;
    }
    text = smoe::document_text(std::move(record), text_key);
    return true;
  };
}

int train_tokenizer(TrainTokenizerArguments arguments) {
  SMOE_CHECK(DataError, arguments.overwrite || !std::filesystem::exists(arguments.output),
             "{}: exists already; remove it, name another output or pass --overwrite",
             arguments.output.string());
  // Another name would make the file useless: the extension tells what kind of tokenizer it is.
  SMOE_CHECK(ConfigError, arguments.output.extension() == ".model",
             "--out {}: SentencePiece models are files *.model; name it {}.model", arguments.output.string(),
             arguments.output.string());
  arguments.options.model =
      arguments.model == "bpe" ? smoe::TokenizerModel::kBpe : smoe::TokenizerModel::kUnigram;
  const auto documents = [&] {
    return documents_of(std::make_shared<smoe::DocumentReader>(arguments.inputs), arguments.text_key);
  };
  const smoe::TokenizerTrainingResult result = smoe::train_sentencepiece(documents(), arguments.options);
  if (arguments.output.has_parent_path()) {
    std::filesystem::create_directories(arguments.output.parent_path());
  }
  smoe::write_file_atomically(arguments.output, result.model);
  fmt::print("{}: vocabulary {}, trained on {} of {} documents ({} of {})\n", arguments.output.string(),
             arguments.options.vocab_size, result.sampled_documents, result.documents,
             smoe::format_bytes(static_cast<double>(result.sampled_bytes)),
             smoe::format_bytes(static_cast<double>(result.bytes)));
  return 0;
}

Body add_train_tokenizer(CLI::App& app) {
  auto arguments = std::make_shared<TrainTokenizerArguments>();
  smoe::TokenizerTrainingOptions& options = arguments->options;
  options.num_threads = smoe::available_cores();
  app.add_option("--input", arguments->inputs, kInputHelp)->required();
  app.add_option("--out", arguments->output, "the SentencePiece model to write (*.model)")->required();
  app.add_option("--vocab-size", options.vocab_size, "entries, with the special tokens and the 256 bytes")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--model", arguments->model, "kind of model")
      ->capture_default_str()
      ->check(CLI::IsMember({"unigram", "bpe"}));
  app.add_option("--special-token", options.special_tokens,
                 "a token that plain text never yields; may be repeated")
      ->take_all()
      ->expected(1);
  app.add_option("--character-coverage", options.character_coverage,
                 "share of characters with a token of their own")
      ->capture_default_str()
      ->check(CLI::Range(0.5, 1.0));
  app.add_option("--max-sample-bytes", options.max_sample_bytes,
                 "documents are sampled down to this; 0: all text")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--threads", options.num_threads, "threads")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--seed", options.seed, "of the sample")->capture_default_str();
  app.add_option("--text-key", arguments->text_key, "JSON key of the text")->capture_default_str();
  app.add_flag("--overwrite", arguments->overwrite, "replace an existing model");
  return [arguments] { return train_tokenizer(*arguments); };
}

Body add_tokenize(CLI::App& app) {
  auto options = std::make_shared<smoe::TokenizeOptions>();
  auto tokenizer = std::make_shared<std::filesystem::path>();
  options->num_workers = smoe::available_cores();
  app.add_option("--input", options->inputs, kInputHelp)->required();
  app.add_option("--tokenizer", *tokenizer, "SentencePiece .model or Hugging Face tokenizer.json")
      ->required();
  app.add_option("--out", options->output, "prefix of the token store: PREFIX.bin, PREFIX.idx, PREFIX.json")
      ->required();
  app.add_option("--workers", options->num_workers, "threads that encode; the result does not depend on them")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--text-key", options->text_key, "JSON key of the text")->capture_default_str();
  app.add_flag("--overwrite", options->overwrite, "replace an existing store");
  return [options, tokenizer] {
    const smoe::TokenizeResult result = smoe::tokenize_files(*options, *smoe::load_tokenizer(*tokenizer));
    if (result.empty_documents > 0) {
      fmt::print("{} documents without text were left out\n", result.empty_documents);
    }
    print_summary(result.info);
    return 0;
  };
}

Body add_inspect(CLI::App& app) {
  auto prefix = std::make_shared<std::filesystem::path>();
  auto tokenizer_path = std::make_shared<std::filesystem::path>();
  auto options = std::make_shared<smoe::StoreReportOptions>();
  app.add_option("prefix", *prefix, "the token store, without .bin, .idx or .json")->required();
  app.add_option("--documents", options->documents, "first documents to show")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--tokens", options->tokens_per_document, "tokens shown of each document")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--tokenizer", *tokenizer_path, "shows the text too");
  return [prefix, tokenizer_path, options] {
    const smoe::TokenStore store(*prefix);
    std::unique_ptr<smoe::Tokenizer> tokenizer;
    if (!tokenizer_path->empty()) {
      tokenizer = smoe::load_tokenizer(*tokenizer_path);
      options->tokenizer = tokenizer.get();
    }
    fmt::print("{}\n", smoe::store_report(store, *options));
    smoe::verify_token_store(store);
    fmt::print("every id is inside the vocabulary, and both files are as they were written\n");
    return 0;
  };
}

Body add_adopt(CLI::App& app) {
  auto prefix = std::make_shared<std::filesystem::path>();
  auto tokenizer = std::make_shared<std::filesystem::path>();
  app.add_option("prefix", *prefix, "the dataset, without .bin or .idx")->required();
  app.add_option("--tokenizer", *tokenizer, "the tokenizer it was made with")->required();
  return [prefix, tokenizer] {
    print_summary(smoe::adopt_indexed_dataset(*prefix, *smoe::load_tokenizer(*tokenizer)));
    return 0;
  };
}

struct PreviewArguments {
  smoe::ConfigSource config;
  std::string input;
  smoe::SftConfig sft;
  std::string tokenizer;
  int64_t sequence_length = 512;
  int64_t rows = 2;
  smoe::ChatPreviewOptions options;
};

void print_rows(const smoe::Batch& batch, const smoe::Tokenizer& tokenizer,
                const smoe::ChatPreviewOptions& options) {
  fmt::print("{}", smoe::chat_preview_legend(options));
  for (int64_t row = 0; row < batch.num_rows(); ++row) {
    fmt::print("{}", smoe::chat_preview(batch, row, tokenizer, options));
  }
}

// The first rows of a run, in the order of its training.
int preview_run(const PreviewArguments& arguments) {
  const auto config = smoe::read_config<smoe::TrainConfig>(arguments.config);
  SMOE_CHECK(ConfigError, config.task == smoe::TrainTask::kSft,
             "{}: its task is {}; preview shows dialogues (task sft), inspect shows token stores",
             arguments.config.file.string(), smoe::enum_to_name(config.task));
  const auto tokenizer = smoe::load_tokenizer(config.data.tokenizer);
  const smoe::TrainingData data(config.data, config.sft, *tokenizer, config.model.vocab_size);
  smoe::ChatPreviewOptions options = arguments.options;
  options.segment_length = config.model.routing.segment_length;
  options.selector_position = config.model.routing.selector_position;
  print_rows(data.rows(0, arguments.rows), *tokenizer, options);
  return 0;
}

// The first rows of a file, in the order of the file.
int preview_file(const PreviewArguments& arguments) {
  SMOE_CHECK(ConfigError, !arguments.input.empty() && !arguments.tokenizer.empty(),
             "preview needs --config, or --input with --tokenizer and --template");
  smoe::DataConfig data;
  data.sequence_length = arguments.sequence_length;
  data.sequences = smoe::SequenceKind::kPacked;
  const auto tokenizer = smoe::load_tokenizer(arguments.tokenizer);
  const smoe::ValidationData rows({"input", arguments.input, 1.0}, data, arguments.sft, *tokenizer,
                                  tokenizer->vocab_size());
  print_rows(rows.rows(0, std::min(arguments.rows, rows.num_rows())), *tokenizer, arguments.options);
  return 0;
}

Body add_preview(CLI::App& app) {
  auto arguments = std::make_shared<PreviewArguments>();
  arguments->options.color = ::isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
  auto* config = app.add_option("--config", arguments->config.file, "YAML of a run with task sft");
  app.add_option("--set", arguments->config.overrides, "override of the config")->take_all()->expected(1);
  app.add_option("--input", arguments->input, "file of messages: *.jsonl, *.jsonl.zst")->excludes(config);
  app.add_option("--template", arguments->sft.chat_template, "YAML of the chat template")->excludes(config);
  app.add_option("--tokenizer", arguments->tokenizer, "SentencePiece .model or Hugging Face tokenizer.json")
      ->excludes(config);
  app.add_option("--sequence-length", arguments->sequence_length, "tokens a row (with --input)")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 24));
  app.add_option("--segment-length", arguments->options.segment_length, "S (with --input)")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--examples", arguments->rows, "packed rows to show")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_flag("--ids", arguments->options.show_ids, "show ids beside tokens");
  return [arguments] {
    return arguments->config.file.empty() ? preview_file(*arguments) : preview_run(*arguments);
  };
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Trains tokenizers, makes and looks into token stores, and shows dialogues as they are trained.");
  app.require_subcommand(1);
  struct Command {
    const char* name;
    const char* help;
    Body (*add)(CLI::App&);
  };
  const std::vector<Command> commands = {
      {"train-tokenizer", "train a SentencePiece tokenizer with byte fallback", add_train_tokenizer},
      {"tokenize", "text files to a token store", add_tokenize},
      {"inspect", "show a token store and check all of it", add_inspect},
      {"adopt", "describe a Megatron-LM dataset made elsewhere, so that it can be trained on", add_adopt},
      {"preview", "show packed dialogues: trained tokens, segments and the tokens that route them",
       add_preview},
  };
  Body body;
  for (const Command& command : commands) {
    CLI::App* subcommand = app.add_subcommand(command.name, command.help);
    subcommand->callback([&body, run = command.add(*subcommand)] { body = run; });
  }
  if (const auto status = smoe::parse_command_line(app, argc, argv)) return *status;
  return smoe::run_tool(body);
}
