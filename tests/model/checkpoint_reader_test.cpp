// Finding, verifying and loading checkpoint folders, and what is said about damaged ones.
#include "smoe/model/checkpoint_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "model/model_test_support.h"
#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/model/safetensors.h"
#include "temporary_folder.h"

namespace smoe {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TensorList weights_of(const Model& model) {
  TensorList tensors;
  for (const NamedParameter& parameter : model.parameters()) {
    tensors.emplace_back(parameter.name, parameter.tensor);
  }
  return tensors;
}

// The struct that holds a run's model section, as training writes it.
struct RunConfig {
  ModelConfig model;
};
template <class Visitor>
void visit_fields(Visitor& visitor, RunConfig& config) {
  visitor.field("model", config.model, "architecture and sizes");
}

void write_checkpoint(const std::filesystem::path& folder, const ModelConfig& config,
                      const TensorList& tensors) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.yaml") << dump_config(RunConfig{config});
  write_safetensors(folder / "model.safetensors", tensors);
  write_checksums(folder);
}

template <class Action>
std::string error_of(Action&& action) {
  try {
    action();
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "no error";
}

class CheckpointReader : public ::testing::TestWithParam<Architecture> {
 protected:
  ModelConfig config_ = testing::tiny_config(Architecture::kSteppedMoe);
  testing::TemporaryFolder folder_;
  std::filesystem::path checkpoint_ = folder_ / "step-00000010";
};

TEST_P(CheckpointReader, LoadedModelGivesTheSameOutputBitForBit) {
  const ModelConfig config = testing::tiny_config(GetParam());
  const Model model = testing::tiny_model(config);
  write_checkpoint(checkpoint_, config, weights_of(model));
  const Model loaded = load_model(checkpoint_, at::kCPU);
  EXPECT_EQ(dump_config(loaded.config()), dump_config(config));
  const ModelInput input =
      testing::plain_input(testing::random_tokens(2, 9, config.vocab_size, 1), config, 1);
  EXPECT_TRUE(at::equal(testing::logits_of(loaded, input), testing::logits_of(model, input)));
  for (const NamedParameter& parameter : loaded.parameters()) {
    EXPECT_FALSE(parameter.tensor.requires_grad()) << parameter.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Architectures, CheckpointReader,
                         ::testing::Values(Architecture::kDense, Architecture::kSteppedMoe,
                                           Architecture::kVanillaMoe),
                         [](const auto& instance) { return std::string(enum_to_name(instance.param)); });

TEST_F(CheckpointReader, ListsByStepAndSkipsOtherFolders) {
  for (const char* name : {"step-00000100", "step-00000020", "step-3", "step-00000200.tmp", ".step-00000300",
                           "step-", "step-x", "superseded-1-step-00000400"}) {
    std::filesystem::create_directories(folder_ / name);
  }
  std::ofstream(folder_ / "step-00000500") << "a file";
  EXPECT_THAT(list_checkpoints(folder_.path()),
              ElementsAre(folder_ / "step-3", folder_ / "step-00000020", folder_ / "step-00000100"));
  EXPECT_TRUE(list_checkpoints(folder_ / "absent").empty());
}

TEST_F(CheckpointReader, ResolvesCheckpointRunAndCheckpointsFolder) {
  const std::filesystem::path run = folder_ / "run";
  const std::filesystem::path newest = run / "checkpoints" / "step-00000020";
  std::filesystem::create_directories(run / "checkpoints" / "step-00000010");
  std::filesystem::create_directories(newest);
  EXPECT_EQ(resolve_checkpoint(run), newest);
  EXPECT_EQ(resolve_checkpoint(run / "checkpoints"), newest);
  EXPECT_EQ(resolve_checkpoint(newest), newest);
  EXPECT_EQ(resolve_checkpoint(newest.string() + "/"), newest);
}

TEST_F(CheckpointReader, UnresolvableFoldersSayWhatWasLookedFor) {
  EXPECT_THAT(error_of([&] { resolve_checkpoint(folder_ / "absent"); }), HasSubstr("no such folder"));
  EXPECT_THAT(
      error_of([&] { resolve_checkpoint(folder_.path()); }),
      AllOf(HasSubstr(folder_.path().string()), HasSubstr("step-<number>"), HasSubstr("model.safetensors")));
}

TEST_F(CheckpointReader, VerifyNamesMissingShortAndAlteredFiles) {
  const Model model = testing::tiny_model(config_);
  write_checkpoint(checkpoint_, config_, weights_of(model));
  EXPECT_EQ(error_of([&] { verify_checkpoint(checkpoint_); }), "no error");

  const std::filesystem::path weights = checkpoint_ / "model.safetensors";
  const std::string bytes = read_file(weights);
  std::string altered = bytes;
  altered[altered.size() / 2] ^= 1;
  std::ofstream(weights, std::ios::binary) << altered;
  EXPECT_THAT(error_of([&] { verify_checkpoint(checkpoint_); }),
              AllOf(HasSubstr(weights.string()), HasSubstr("altered or cut short")));

  std::ofstream(weights, std::ios::binary) << bytes.substr(0, bytes.size() - 1);
  EXPECT_THAT(error_of([&] { load_model(checkpoint_, at::kCPU); }), HasSubstr("altered or cut short"));

  std::filesystem::remove(weights);
  EXPECT_THAT(error_of([&] { verify_checkpoint(checkpoint_); }), HasSubstr("model.safetensors is missing"));
}

TEST_F(CheckpointReader, VerifyRefusesDamagedChecksums) {
  const Model model = testing::tiny_model(config_);
  write_checkpoint(checkpoint_, config_, weights_of(model));
  const auto with_checksums = [&](const std::string& text) {
    std::ofstream(checkpoint_ / "checksums.json") << text;
    return error_of([&] { verify_checkpoint(checkpoint_); });
  };
  EXPECT_THAT(with_checksums("{\"model.safe"), HasSubstr("not a JSON object"));
  EXPECT_THAT(with_checksums("[]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(with_checksums("{}"), HasSubstr("config.yaml has no checksum"));
  EXPECT_THAT(with_checksums(R"({"../outside": "00"})"),
              HasSubstr("\"../outside\" is not a file of this folder"));
  EXPECT_THAT(with_checksums(R"({"config.yaml": 5})"), HasSubstr("\"config.yaml\" is not a file"));
  std::filesystem::remove(checkpoint_ / "checksums.json");
  EXPECT_THAT(error_of([&] { verify_checkpoint(checkpoint_); }), HasSubstr("checksums.json is missing"));
}

TEST_F(CheckpointReader, MisfitsAreReportedTogether) {
  Model model = testing::tiny_model(config_);
  TensorList tensors = weights_of(model);
  tensors[0].second = at::zeros({3, 4});
  tensors[1].first = "surplus.weight";
  tensors[2].second = at::zeros(tensors[2].second.sizes(), at::kLong);
  write_checkpoint(checkpoint_, config_, tensors);
  const std::string error = error_of([&] { load_model_weights(checkpoint_, model); });
  EXPECT_THAT(error, AllOf(HasSubstr("token_embedding.weight: shape 3 x 4 in the file, 61 x 24 in the model"),
                           HasSubstr("size_embedding.weight: missing; the model expects 3 x 24"),
                           HasSubstr("surplus.weight: in the file, but not in the model"),
                           HasSubstr(tensors[2].first + ": dtype Long")));
}

TEST_F(CheckpointReader, WidensStoredBfloat16) {
  Model model = testing::tiny_model(config_);
  TensorList tensors = weights_of(model);
  for (auto& [name, tensor] : tensors) {
    tensor = tensor.to(at::kBFloat16);
  }
  write_checkpoint(checkpoint_, config_, tensors);
  load_model_weights(checkpoint_, model);
  EXPECT_TRUE(at::equal(model.parameters()[0].tensor, tensors[0].second.to(at::kFloat)));
}

TEST_F(CheckpointReader, FindsTheTokenizerOrSaysThatThereIsNone) {
  std::filesystem::create_directories(checkpoint_);
  EXPECT_THAT(error_of([&] { checkpoint_tokenizer(checkpoint_); }),
              HasSubstr("no tokenizer.model or tokenizer.json"));
  std::ofstream(checkpoint_ / "tokenizer.json") << "{}";
  EXPECT_EQ(checkpoint_tokenizer(checkpoint_), checkpoint_ / "tokenizer.json");
}

TEST_F(CheckpointReader, MissingConfigIsNamed) {
  std::filesystem::create_directories(checkpoint_);
  EXPECT_THAT(error_of([&] { read_checkpoint_model_config(checkpoint_); }),
              HasSubstr("config.yaml is missing"));
}

}  // namespace
}  // namespace smoe
