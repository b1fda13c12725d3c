// Weights in one file or in shards with an index: what is written is read back, and contradictions are named.
#include "smoe/model/weight_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/model_test_support.h"
#include "smoe/core/error.h"
#include "smoe/core/json.h"
#include "smoe/model/checkpoint_reader.h"
#include "temporary_folder.h"

namespace smoe {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

DeferredTensor deferred(const std::string& name, const at::Tensor& tensor) {
  return {name, tensor.scalar_type(), tensor.sizes().vec(), [tensor] { return tensor; }};
}

class WeightFilesTest : public ::testing::Test {
 protected:
  // Three tensors of 40 bytes and one of 400.
  std::vector<DeferredTensor> tensors_ = {
      deferred("a", at::arange(10, at::kFloat)), deferred("b", at::arange(10, at::kFloat) + 10),
      deferred("large", at::arange(100, at::kFloat)), deferred("c", at::arange(20).to(at::kBFloat16))};
  testing::TemporaryFolder folder_;

  std::string error_of_reading() {
    try {
      WeightFiles files(folder_.path());
    } catch (const CheckpointError& error) {
      return error.what();
    }
    return "no error";
  }
  nlohmann::json index() { return read_json_file(folder_ / kWeightsIndexFile); }
  void write_index(const nlohmann::json& value) { write_json_atomically(folder_ / kWeightsIndexFile, value); }
  void check_content() {
    const WeightFiles files(folder_.path());
    EXPECT_THAT(files.names(), ElementsAre("a", "b", "large", "c"));
    for (const DeferredTensor& tensor : tensors_) {
      EXPECT_TRUE(at::equal(files.tensor(tensor.name), tensor.make())) << tensor.name;
    }
  }
};

TEST_F(WeightFilesTest, OneFileHoldsAllWithoutALimit) {
  write_weight_files(folder_.path(), tensors_, 0);
  EXPECT_THAT(list_weight_files(folder_.path()), ElementsAre("model.safetensors"));
  check_content();
}

TEST_F(WeightFilesTest, ShardsStayBelowTheLimitAndReadBackInOrder) {
  write_weight_files(folder_.path(), tensors_, 80, {{"format", "pt"}});
  EXPECT_THAT(list_weight_files(folder_.path()),
              ElementsAre("model.safetensors.index.json", "model-00001-of-00003.safetensors",
                          "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors"));
  EXPECT_EQ(index()["weight_map"]["large"], "model-00002-of-00003.safetensors");
  EXPECT_EQ(index()["metadata"]["total_size"], 520);
  EXPECT_EQ(SafetensorsFile(folder_ / "model-00003-of-00003.safetensors").metadata().at("format"), "pt");
  check_content();
}

TEST_F(WeightFilesTest, AbsentTensorIsNamed) {
  write_weight_files(folder_.path(), tensors_, 80);
  const WeightFiles files(folder_.path());
  EXPECT_FALSE(files.contains("d"));
  EXPECT_THROW(files.tensor("d"), CheckpointError);
}

TEST_F(WeightFilesTest, ContradictionsBetweenIndexAndFilesAreNamed) {
  write_weight_files(folder_.path(), tensors_, 80);
  const nlohmann::json good = index();
  nlohmann::json changed = good;
  changed["weight_map"].erase("b");
  write_index(changed);
  EXPECT_THAT(error_of_reading(), AllOf(HasSubstr("\"b\" is in model-00001"), HasSubstr("does not list it")));
  changed = good;
  changed["weight_map"]["a"] = "model-00003-of-00003.safetensors";
  write_index(changed);
  EXPECT_THAT(error_of_reading(), HasSubstr("says it is in model-00003-of-00003.safetensors"));
  changed = good;
  changed["weight_map"]["ghost"] = "model-00001-of-00003.safetensors";
  write_index(changed);
  EXPECT_THAT(error_of_reading(), AllOf(HasSubstr("\"ghost\""), HasSubstr("but it is not")));
  changed = good;
  changed["weight_map"]["a"] = "../model-00001-of-00003.safetensors";
  write_index(changed);
  EXPECT_THAT(error_of_reading(), HasSubstr("not the name of a safetensors file in this folder"));
  write_index({{"weight_map", nlohmann::json::object()}});
  EXPECT_THAT(error_of_reading(), HasSubstr("names no tensor"));
  write_index({{"weights", 1}});
  EXPECT_THAT(error_of_reading(), HasSubstr("no object \"weight_map\""));
  folder_.write(kWeightsIndexFile, "{\"weight_map\":");
  EXPECT_THAT(error_of_reading(), AllOf(HasSubstr(kWeightsIndexFile), HasSubstr("The index is damaged")));
}

TEST_F(WeightFilesTest, MissingShardsAndDoubledWeightsAreNamed) {
  EXPECT_THAT(error_of_reading(), HasSubstr("model.safetensors is missing"));
  write_weight_files(folder_.path(), tensors_, 80);
  std::filesystem::copy_file(folder_ / "model-00002-of-00003.safetensors", folder_ / kWeightsFile);
  EXPECT_THAT(error_of_reading(), HasSubstr("both model.safetensors and model.safetensors.index.json"));
  std::filesystem::remove(folder_ / kWeightsFile);
  std::filesystem::remove(folder_ / "model-00002-of-00003.safetensors");
  EXPECT_THAT(error_of_reading(), HasSubstr("model-00002-of-00003.safetensors"));
}

// The struct that holds a run's model section, as training writes it.
struct RunConfig {
  ModelConfig model;
};
template <class Visitor>
void visit_fields(Visitor& visitor, RunConfig& config) {
  visitor.field("model", config.model, "architecture and sizes");
}

TEST(ShardedCheckpoint, LoadsLikeOneFileAndVerifiesEveryShard) {
  const testing::TemporaryFolder folder;
  const std::filesystem::path checkpoint = folder / "step-00000003";
  std::filesystem::create_directories(checkpoint);
  const ModelConfig config = testing::tiny_config(Architecture::kSteppedMoe);
  const Model model = testing::tiny_model(config);
  std::vector<DeferredTensor> tensors;
  for (const NamedParameter& parameter : model.parameters()) {
    tensors.push_back(deferred(parameter.name, parameter.tensor));
  }
  folder.write("step-00000003/config.yaml", dump_config(RunConfig{config}));
  write_weight_files(checkpoint, tensors, 20'000);
  write_checksums(checkpoint);
  ASSERT_GT(list_weight_files(checkpoint).size(), 3U);
  EXPECT_EQ(resolve_checkpoint(folder.path()), checkpoint);

  const Model loaded = load_model(checkpoint, at::kCPU);
  const ModelInput input =
      testing::plain_input(testing::random_tokens(2, 9, config.vocab_size, 1), config, 1);
  EXPECT_TRUE(at::equal(testing::logits_of(loaded, input), testing::logits_of(model, input)));

  const std::filesystem::path last = checkpoint / list_weight_files(checkpoint).back();
  std::filesystem::remove(last);
  try {
    verify_checkpoint(checkpoint);
    FAIL() << "the missing shard was not noticed";
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), HasSubstr(last.filename().string() + " is missing"));
  }
}

}  // namespace
}  // namespace smoe
