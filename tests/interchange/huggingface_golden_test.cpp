// Models of transformers through our import, forward and export: tests/golden/interchange/make_golden.py made
// the folders and computed the logits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "interchange/interchange_test_support.h"
#include "model/model_test_support.h"
#include "smoe/core/files.h"
#include "smoe/interchange/huggingface.h"
#include "smoe/model/weight_files.h"
#include "temporary_folder.h"

namespace smoe {
namespace {

using ::testing::AllOf;
using testing::error_of;
using testing::golden_folder;
using ::testing::HasSubstr;

HuggingFaceImportOptions with_tokenizer() {
  HuggingFaceImportOptions options;
  options.tokenizer = testing::tokenizer_folder() / "sentencepiece_bpe.model";
  return options;
}

at::Tensor golden_tokens() { return read_token_rows(golden_folder() / "tokens.json", 47); }

// The number of experts a token, which names the one budget of an imported model.
std::string budget_of(const std::filesystem::path& checkpoint) {
  const ModelConfig config = read_checkpoint_model_config(checkpoint);
  return config.architecture == Architecture::kDense ? "" : config.budgets.front().name;
}

class HuggingFaceGolden : public ::testing::TestWithParam<std::string> {
 protected:
  std::filesystem::path source_ = golden_folder() / GetParam();
  testing::TemporaryFolder folder_;
};

TEST_P(HuggingFaceGolden, ImportedModelGivesTheLogitsOfTransformers) {
  const InterchangeSummary summary = import_huggingface(source_, folder_ / "model", with_tokenizer());
  EXPECT_EQ(summary.model_class,
            read_json_file(source_ / "config.json")["architectures"][0].get<std::string>());
  const at::Tensor expected = SafetensorsFile(source_ / "expected.safetensors").tensor("logits");
  const at::Tensor logits =
      testing::checkpoint_logits(folder_ / "model", golden_tokens(), budget_of(folder_ / "model"));
  EXPECT_LT((logits - expected).abs().max().item<float>(), 1e-4F);
}

TEST_P(HuggingFaceGolden, ExportGivesBackEveryTensorAndKey) {
  import_huggingface(source_, folder_ / "model", with_tokenizer());
  export_huggingface(folder_ / "model", folder_ / "back", {});
  const WeightFiles original(source_);
  const WeightFiles back(folder_ / "back");
  EXPECT_EQ(back.names().size(), original.names().size());
  for (const std::string& name : original.names()) {
    ASSERT_TRUE(back.contains(name)) << name;
    EXPECT_EQ(back.tensor(name).scalar_type(), original.tensor(name).scalar_type()) << name;
    EXPECT_TRUE(at::equal(back.tensor(name), original.tensor(name))) << name;
  }
  const nlohmann::json before = read_json_file(source_ / "config.json");
  const nlohmann::json after = read_json_file(folder_ / "back/config.json");
  for (const char* key :
       {"architectures", "model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
        "num_attention_heads", "num_key_value_heads", "head_dim", "hidden_act", "rms_norm_eps",
        "rope_parameters", "max_position_embeddings", "tie_word_embeddings", "num_experts_per_tok",
        "moe_intermediate_size", "norm_topk_prob", "mlp_only_layers"}) {
    // save_pretrained writes null for a width that it derives.
    if (before.contains(key) && !before[key].is_null()) {
      EXPECT_EQ(after.value(key, nlohmann::json()), before[key]) << key;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Folders, HuggingFaceGolden,
                         ::testing::Values("llama_tied", "llama_sharded", "llama_bf16", "qwen3", "mixtral",
                                           "qwen3_moe", "qwen3_moe_normalized"),
                         [](const auto& instance) { return instance.param; });

TEST(HuggingFaceExport, ShardsAndConvertsOnRequest) {
  const testing::TemporaryFolder folder;
  import_huggingface(golden_folder() / "llama_tied", folder / "model", with_tokenizer());
  HuggingFaceExportOptions options;
  options.dtype = at::kBFloat16;
  options.max_shard_bytes = 4000;
  const InterchangeSummary summary = export_huggingface(folder / "model", folder / "out", options);
  EXPECT_GT(summary.num_files, 2U);
  const WeightFiles out(folder / "out");
  EXPECT_EQ(out.tensor("model.norm.weight").scalar_type(), at::kBFloat16);
  EXPECT_EQ(read_json_file(folder / "out/config.json")["torch_dtype"], "bfloat16");
  // And it comes back as it went.
  import_huggingface(folder / "out", folder / "back", with_tokenizer());
  const at::Tensor expected = WeightFiles(folder / "model").tensor("token_embedding.weight");
  EXPECT_TRUE(
      at::equal(WeightFiles(folder / "back").tensor("token_embedding.weight"), expected.to(at::kBFloat16)));
}

TEST(HuggingFaceExport, RefusesModelsThatNoClassComputes) {
  const testing::TemporaryFolder folder;
  const auto error_for = [&](const ModelConfig& config, const std::string& name) {
    testing::write_checkpoint(folder / name, testing::tiny_model(config));
    return error_of([&] { export_huggingface(folder / name, folder / (name + "-out"), {}); });
  };
  EXPECT_THAT(error_for(testing::tiny_config(Architecture::kSteppedMoe), "stepped"),
              AllOf(HasSubstr("stepped_moe has no Hugging Face form"), HasSubstr("checkpoint_format.md")));
  ModelConfig vanilla = testing::tiny_config(Architecture::kVanillaMoe);
  EXPECT_THAT(error_for(vanilla, "shared"),
              AllOf(HasSubstr("qwen3_moe: it has no shared experts (model.num_shared_experts is 1)"),
                    HasSubstr("mixtral:"), HasSubstr("model.num_dense_layers is 2")));
  vanilla.num_shared_experts = 0;
  EXPECT_THAT(error_for(vanilla, "budgets"), AllOf(HasSubstr("3 budgets"), HasSubstr("--budget")));
  EXPECT_FALSE(std::filesystem::exists(folder / "budgets-out"));
}

TEST(HuggingFaceExport, ExportsTheBudgetThatIsAskedFor) {
  const testing::TemporaryFolder folder;
  ModelConfig config = testing::tiny_config(Architecture::kVanillaMoe);
  config.num_shared_experts = 0;
  const Model model = testing::tiny_model(config);
  testing::write_checkpoint(folder / "model", model);
  HuggingFaceExportOptions options;
  options.budget = "two";
  const InterchangeSummary summary = export_huggingface(folder / "model", folder / "out", options);
  EXPECT_EQ(read_json_file(folder / "out/config.json")["num_experts_per_tok"], 3);
  EXPECT_THAT(summary.notes, ::testing::Contains(HasSubstr("no tokenizer")));
  import_huggingface(folder / "out", folder / "back", with_tokenizer());
  const at::Tensor tokens = testing::random_tokens(2, 9, config.vocab_size, 3);
  EXPECT_TRUE(at::equal(testing::checkpoint_logits(folder / "back", tokens, "3"),
                        testing::checkpoint_logits(folder / "model", tokens, "two")));
}

class HuggingFaceImport : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::copy(golden_folder() / "llama_tied", source_);
    std::filesystem::remove(source_ / "expected.safetensors");
  }
  TensorList tensors() { return SafetensorsFile(source_ / "model.safetensors").tensors(); }
  std::string error_with(TensorList changed) {
    for (auto& [name, tensor] : changed) tensor = tensor.clone();
    write_safetensors(source_ / "model.safetensors", changed);
    return error_of([&] { import_huggingface(source_, folder_ / "out", with_tokenizer()); });
  }
  testing::TemporaryFolder folder_;
  std::filesystem::path source_ = folder_ / "source";
};

TEST_F(HuggingFaceImport, NamesTensorsThatDoNotFit) {
  TensorList changed = tensors();
  changed.pop_back();
  const std::string missing = tensors().back().first;
  EXPECT_THAT(error_with(changed), HasSubstr(missing + ": missing"));
  changed = tensors();
  changed.emplace_back("model.layers.0.self_attn.q_proj.bias", at::zeros({16}));
  EXPECT_THAT(error_with(changed), HasSubstr("q_proj.bias: has no place in the model"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
}

TEST_F(HuggingFaceImport, TiedHeadMayBeStoredAsWellIfItIsTheSame) {
  TensorList changed = tensors();
  const at::Tensor embedding =
      SafetensorsFile(source_ / "model.safetensors").tensor("model.embed_tokens.weight");
  changed.emplace_back("lm_head.weight", embedding + 1.0);
  EXPECT_THAT(error_with(changed), HasSubstr("lm_head.weight: has no place"));
  changed.back().second = embedding;
  EXPECT_EQ(error_with(changed), "no error");
}

TEST_F(HuggingFaceImport, SaysWhatIsMissingInTheFolder) {
  const auto error = [&] { return error_of([&] { import_huggingface(source_, folder_ / "out", {}); }); };
  EXPECT_THAT(error(),
              AllOf(HasSubstr("neither tokenizer.json nor tokenizer.model"), HasSubstr("--tokenizer")));
  std::filesystem::remove(source_ / "model.safetensors");
  EXPECT_THAT(error(), HasSubstr("pytorch_model.bin"));
  std::filesystem::remove(source_ / "config.json");
  EXPECT_THAT(error(), HasSubstr("no config.json"));
}

}  // namespace
}  // namespace smoe
