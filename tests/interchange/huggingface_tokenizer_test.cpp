// Tokenizer and chat template on their way into a Hugging Face folder and back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "chat_test_support.h"
#include "interchange/interchange_test_support.h"
#include "model/model_test_support.h"
#include "smoe/core/files.h"
#include "smoe/data/chat_template.h"
#include "smoe/interchange/huggingface.h"
#include "smoe/interchange/jinja_template.h"
#include "temporary_folder.h"

namespace smoe {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using testing::error_of;
using ::testing::HasSubstr;

fs::path chat_file(const std::string& name) {
  return fs::path(SMOE_SOURCE_DIR) / "configs/chat_templates" / name;
}

class HuggingFaceTokenizer : public ::testing::Test {
 protected:
  // A dense checkpoint with the byte tokenizer of the chat tests.
  void write_checkpoint(const std::string& chat) {
    const Model model = testing::tiny_model(testing::tiny_config(Architecture::kDense));
    const fs::path tokenizer = testing::write_chat_tokenizer(folder_ / "tokenizer");
    ModelConfig config = model.config();
    config.vocab_size = 263;
    testing::write_checkpoint(folder_ / "model", testing::tiny_model(config), tokenizer, chat);
    fs::copy_file(folder_ / "tokenizer/special_tokens_map.json", folder_ / "model/special_tokens_map.json");
  }
  nlohmann::json read(const std::string& name) { return read_json_file(folder_ / ("out/" + name)); }

  testing::TemporaryFolder folder_;
};

TEST_F(HuggingFaceTokenizer, SpecialTokensAndStopsAreWrittenForTransformers) {
  write_checkpoint(read_file(chat_file("chatml.yaml")));
  export_huggingface(folder_ / "model", folder_ / "out", {});
  const nlohmann::json config = read("tokenizer_config.json");
  EXPECT_EQ(config["tokenizer_class"], "PreTrainedTokenizerFast");
  EXPECT_EQ(config["bos_token"], "<|begin_of_text|>");
  EXPECT_EQ(config["eos_token"], "<|endoftext|>");
  EXPECT_EQ(config["model_max_length"], 64);
  EXPECT_EQ(config["chat_template"], to_jinja(load_chat_template(chat_file("chatml.yaml"))));
  // EOS, and <|im_end|>, at which an answer ends.
  EXPECT_EQ(read("generation_config.json")["eos_token_id"], nlohmann::json({262, 257}));
  EXPECT_EQ(read("config.json")["bos_token_id"], 258);
}

TEST_F(HuggingFaceTokenizer, EndsOfAnswersThatAreTextAreNoted) {
  const auto notes_of = [&](const std::string& assistant) {
    fs::remove_all(folder_.path());
    fs::create_directories(folder_.path());
    write_checkpoint("name: text\nuser: {prefix: \"Q: \"}\nassistant: " + assistant + "\n");
    return export_huggingface(folder_ / "model", folder_ / "out", {}).notes;
  };
  EXPECT_THAT(notes_of(R"({prefix: "A: ", end: "<done>", end_with_eos: false})"),
              Contains(AllOf(HasSubstr("`<done>`"), HasSubstr("stop_strings"))));
  EXPECT_THAT(notes_of(R"({prefix: "A: ", end: "<done>", end_with_eos: true})"),
              Contains(AllOf(HasSubstr("`<done>`"), HasSubstr("before EOS"))));
  EXPECT_THAT(notes_of(R"({prefix: "A: ", end: "", end_with_eos: true})"), ::testing::IsEmpty());
}

TEST_F(HuggingFaceTokenizer, ChatTemplateAndTokenizerComeBack) {
  write_checkpoint(read_file(chat_file("llama3.yaml")));
  export_huggingface(folder_ / "model", folder_ / "out", {});
  const InterchangeSummary summary = import_huggingface(folder_ / "out", folder_ / "back", {});
  EXPECT_TRUE(summary.notes.empty());
  EXPECT_EQ(dump_config(checkpoint_chat_template(folder_ / "back")),
            dump_config(load_chat_template(chat_file("llama3.yaml"))));
  const auto tokenizer = load_tokenizer(checkpoint_tokenizer(folder_ / "back"));
  EXPECT_EQ(tokenizer->bos_id(), testing::kBeginOfText);
  EXPECT_EQ(tokenizer->eos_id(), testing::kEndOfText);
  EXPECT_EQ(tokenizer->hash(), load_tokenizer(checkpoint_tokenizer(folder_ / "model"))->hash());
  verify_checkpoint(folder_ / "back");
}

TEST_F(HuggingFaceTokenizer, ForeignJinjaIsNotedAndCanBeReplaced) {
  write_checkpoint("");
  export_huggingface(folder_ / "model", folder_ / "out", {});
  write_file_atomically(folder_ / "out/chat_template.jinja",
                        "{% for m in messages %}<|im_start|>{{ m.role }}{% endfor %}");
  const InterchangeSummary summary = import_huggingface(folder_ / "out", folder_ / "without", {});
  EXPECT_THAT(summary.notes, Contains(AllOf(HasSubstr("chatml.yaml"), HasSubstr("--chat-template"))));
  EXPECT_FALSE(fs::exists(folder_ / "without/chat_template.yaml"));
  HuggingFaceImportOptions options;
  options.chat_template = chat_file("chatml.yaml");
  EXPECT_TRUE(import_huggingface(folder_ / "out", folder_ / "with", options).notes.empty());
  EXPECT_EQ(checkpoint_chat_template(folder_ / "with").name, "chatml");
}

TEST_F(HuggingFaceTokenizer, TemplateThatTheTokenizerLacksTokensForIsRefused) {
  write_checkpoint("");
  export_huggingface(folder_ / "model", folder_ / "out", {});
  HuggingFaceImportOptions options;
  options.tokenizer = testing::tokenizer_folder() / "sentencepiece_bpe.model";
  options.chat_template = chat_file("llama3.yaml");
  EXPECT_THAT(error_of([&] { import_huggingface(folder_ / "out", folder_ / "back", options); }),
              AllOf(HasSubstr("llama3"), HasSubstr("<|start_header_id|>")));
  EXPECT_FALSE(fs::exists(folder_ / "back"));
}

TEST_F(HuggingFaceTokenizer, SentencePieceIsUsedWhereTokenizerJsonIsNotByteLevel) {
  write_checkpoint("");
  export_huggingface(folder_ / "model", folder_ / "out", {});
  write_file_atomically(folder_ / "out/tokenizer.json",
                        R"({"version": "1.0", "added_tokens": [{"content": "<pad>"}, {"content": "<s>"}],
                            "model": {"type": "Unigram", "vocab": []}})");
  EXPECT_THAT(error_of([&] { import_huggingface(folder_ / "out", folder_ / "back", {}); }),
              AllOf(HasSubstr("tokenizer.json"), HasSubstr("no SentencePiece tokenizer.model")));
  fs::copy_file(testing::tokenizer_folder() / "sentencepiece_bpe.model", folder_ / "out/tokenizer.model");
  const InterchangeSummary summary = import_huggingface(folder_ / "out", folder_ / "back", {});
  EXPECT_THAT(summary.notes, Contains(AllOf(HasSubstr("tokenizer.model is used"), HasSubstr("<pad>"))));
  EXPECT_EQ(checkpoint_tokenizer(folder_ / "back").filename(), "tokenizer.model");
}

TEST_F(HuggingFaceTokenizer, SentencePieceIsExportedAsALlamaTokenizer) {
  ModelConfig config = testing::tiny_config(Architecture::kDense);
  testing::write_checkpoint(folder_ / "model", testing::tiny_model(config),
                            testing::tokenizer_folder() / "sentencepiece_bpe.model");
  export_huggingface(folder_ / "model", folder_ / "out", {});
  EXPECT_EQ(read("tokenizer_config.json")["tokenizer_class"], "LlamaTokenizer");
  EXPECT_TRUE(fs::exists(folder_ / "out/tokenizer.model"));
}

}  // namespace
}  // namespace smoe
