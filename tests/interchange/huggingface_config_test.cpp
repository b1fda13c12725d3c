// What of a config.json is taken over, and what is refused in which words.
#include "smoe/interchange/huggingface_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "interchange/interchange_test_support.h"

namespace smoe {
namespace {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;

nlohmann::json llama() {
  return {{"model_type", "llama"},          {"vocab_size", 100},      {"hidden_size", 32},
          {"intermediate_size", 64},        {"num_hidden_layers", 3}, {"num_attention_heads", 4},
          {"num_key_value_heads", 2},       {"rms_norm_eps", 1e-6},   {"rope_theta", 500000.0},
          {"max_position_embeddings", 512}, {"hidden_act", "silu"},   {"tie_word_embeddings", true}};
}

nlohmann::json qwen3_moe() {
  nlohmann::json config = llama();
  config.update({{"model_type", "qwen3_moe"},
                 {"num_experts", 8},
                 {"num_experts_per_tok", 2},
                 {"moe_intermediate_size", 16},
                 {"mlp_only_layers", nlohmann::json::array()},
                 {"decoder_sparse_step", 1},
                 {"norm_topk_prob", true}});
  return config;
}

std::string error_with(nlohmann::json config, const std::string& key, const nlohmann::json& value) {
  config[key] = value;
  return error_of([&] { from_huggingface_config(config, "config.json"); });
}

TEST(HuggingFaceConfig, ReadsTheShapesOfALlama) {
  const HuggingFaceModel model = from_huggingface_config(llama(), "config.json");
  EXPECT_EQ(model.family, HuggingFaceFamily::kLlama);
  EXPECT_EQ(model.max_positions, 512);
  EXPECT_EQ(model.config.architecture, Architecture::kDense);
  EXPECT_EQ(model.config.dim, 32);
  EXPECT_EQ(model.config.head_dim, 8);
  EXPECT_EQ(model.config.num_kv_heads, 2);
  EXPECT_EQ(model.config.num_dense_layers, 3);
  EXPECT_DOUBLE_EQ(model.config.rope_theta, 500000.0);
  EXPECT_TRUE(model.config.tied_embeddings);
  EXPECT_FALSE(model.config.qk_norm);
}

TEST(HuggingFaceConfig, DenseLayersComeBeforeTheMoeLayers) {
  nlohmann::json config = qwen3_moe();
  config["mlp_only_layers"] = {0};
  const ModelConfig model = from_huggingface_config(config, "config.json").config;
  EXPECT_EQ(model.num_dense_layers, 1);
  EXPECT_EQ(model.num_moe_layers, 2);
  EXPECT_EQ(model.num_shared_experts, 0);
  EXPECT_EQ(model.budgets.front().experts_per_layer, 2);
  EXPECT_THAT(error_with(config, "mlp_only_layers", {1}),
              AllOf(HasSubstr("mlp_only_layers"), HasSubstr("[1]")));
  EXPECT_THAT(error_with(config, "mlp_only_layers", {0, 1, 2}), HasSubstr("no MoE layer"));
  EXPECT_THAT(error_with(config, "num_experts_per_tok", 9), HasSubstr("more than the 8 experts"));
}

TEST(HuggingFaceConfig, MistralWithoutAWindowIsALlama) {
  nlohmann::json config = llama();
  config["model_type"] = "mistral";
  config["sliding_window"] = nullptr;
  EXPECT_EQ(from_huggingface_config(config, "").family, HuggingFaceFamily::kLlama);
  EXPECT_EQ(error_with(config, "sliding_window", 512), "no error") << "as long as the longest row";
  EXPECT_THAT(error_with(config, "sliding_window", 511),
              AllOf(HasSubstr("sliding_window is 511"), HasSubstr("allowed is null")));
}

TEST(HuggingFaceConfig, RefusesWhatOurModelsDoNotCompute) {
  EXPECT_THAT(error_with(llama(), "rope_scaling", {{"rope_type", "llama3"}, {"factor", 8.0}}),
              AllOf(HasSubstr("config.json"), HasSubstr("rope_scaling.rope_type is \"llama3\""),
                    HasSubstr("allowed is \"default\""), HasSubstr("rope_scaling.factor is 8.0")));
  EXPECT_THAT(error_with(llama(), "attention_bias", true),
              AllOf(HasSubstr("attention_bias is true"), HasSubstr("allowed is false")));
  EXPECT_THAT(error_with(llama(), "mlp_bias", true), HasSubstr("mlp_bias is true"));
  EXPECT_THAT(error_with(llama(), "hidden_act", "gelu"),
              AllOf(HasSubstr("hidden_act is \"gelu\""), HasSubstr("\"silu\"")));
  EXPECT_THAT(error_with(llama(), "quantization_config", {{"bits", 4}}),
              AllOf(HasSubstr("quantization_config"), HasSubstr("only null")));
  EXPECT_THAT(error_with(qwen3_moe(), "decoder_sparse_step", 2), HasSubstr("decoder_sparse_step is 2"));
  EXPECT_THAT(error_with(llama(), "model_type", "gemma2"),
              AllOf(HasSubstr("\"gemma2\""), HasSubstr("qwen3_moe")));
}

TEST(HuggingFaceConfig, DefaultRotaryParametersAreAccepted) {
  nlohmann::json config = llama();
  config.erase("rope_theta");
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 777.0}};
  EXPECT_DOUBLE_EQ(from_huggingface_config(config, "").config.rope_theta, 777.0);
  EXPECT_EQ(error_with(llama(), "rope_scaling", nullptr), "no error");
}

TEST(HuggingFaceConfig, UnknownKeysAreRefusedUnlessIgnored) {
  nlohmann::json config = llama();
  config["logit_softcap"] = 30.0;
  EXPECT_THAT(error_of([&] { from_huggingface_config(config, "config.json"); }),
              AllOf(HasSubstr("logit_softcap is 30.0"), HasSubstr("--ignore-config-key logit_softcap")));
  EXPECT_NO_THROW(from_huggingface_config(config, "config.json", {"logit_softcap"}));
}

TEST(HuggingFaceConfig, KeysOfPublishedModelsThatChangeNothingAreTaken) {
  nlohmann::json config = llama();
  config.update({{"_name_or_path", "x"},
                 {"is_llama_config", true},
                 {"rope_interleaved", false},
                 {"transformers.js_config", {{"dtype", "q4"}}},
                 {"pretraining_tp", 1},
                 {"head_dim", nullptr}});
  EXPECT_NO_THROW(from_huggingface_config(config, ""));
  EXPECT_THAT(error_with(config, "rope_interleaved", true), HasSubstr("rope_interleaved is true"));
}

TEST(HuggingFaceConfig, WrongTypesAndMissingShapesAreAllReported) {
  nlohmann::json config = llama();
  config.erase("hidden_size");
  config["vocab_size"] = "many";
  config["num_hidden_layers"] = 0;
  config["tie_word_embeddings"] = 1;
  EXPECT_THAT(error_of([&] { from_huggingface_config(config, "config.json"); }),
              AllOf(HasSubstr("hidden_size is missing"), HasSubstr("vocab_size is \"many\""),
                    HasSubstr("num_hidden_layers is 0"), HasSubstr("tie_word_embeddings is 1")));
  EXPECT_THAT(error_of([] { from_huggingface_config(nlohmann::json::array(), "config.json"); }),
              HasSubstr("model_type"));
}

TEST(HuggingFaceConfig, WrittenConfigReadsBackAsTheSameModel) {
  for (nlohmann::json source : {llama(), qwen3_moe()}) {
    const HuggingFaceModel model = from_huggingface_config(source, "");
    HuggingFaceDetails details;
    details.max_positions = model.max_positions;
    details.experts_per_token = 2;
    const nlohmann::json written = to_huggingface_config(model.config, model.family, details);
    const HuggingFaceModel back = from_huggingface_config(written, "");
    EXPECT_EQ(dump_config(back.config), dump_config(model.config));
    EXPECT_EQ(back.max_positions, model.max_positions);
  }
}

}  // namespace
}  // namespace smoe
