#include "smoe/infer/streaming_package.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "chat_test_support.h"
#include "infer/streaming_test_support.h"
#include "interchange/interchange_test_support.h"
#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/core/json.h"

namespace smoe {
namespace {

using ::testing::HasSubstr;
using testing::PackagedModel;

class PackageTest : public ::testing::Test {
 protected:
  std::filesystem::path file(const char* name) const { return packaged.path() / name; }
  void write(const char* name, const std::string& bytes) const {
    std::ofstream(file(name), std::ios::binary) << bytes;
  }
  // The message with which opening and verifying ends.
  std::string problem() const {
    try {
      const StreamingPackage package(packaged.path());
      package.verify_files();
      package.verify_experts();
    } catch (const CheckpointError& error) {
      return error.what();
    }
    return "";
  }

  PackagedModel packaged{testing::tiny_config(Architecture::kSteppedMoe), ExpertEncoding::kInt8};
};

TEST_F(PackageTest, IsCompleteAfterExport) { EXPECT_EQ(problem(), ""); }

TEST_F(PackageTest, DescribesItsExperts) {
  const StreamingPackage package(packaged.path());
  EXPECT_EQ(package.num_moe_layers(), 3);
  EXPECT_EQ(package.num_experts(), 8);
  EXPECT_EQ(package.layout().encoding, ExpertEncoding::kInt8);
  EXPECT_EQ(package.block(2, 3).offset, 19 * package.layout().block_bytes);
  EXPECT_EQ(package.model_config().dim, 24);
}

TEST_F(PackageTest, NamesAFolderThatIsNoPackage) {
  std::filesystem::remove(file("index.json"));
  EXPECT_THAT(problem(), HasSubstr("not a streaming package"));
}

TEST_F(PackageTest, NamesAnIndexThatWasCutShort) {
  write("index.json", read_file(file("index.json")).substr(0, 200));
  EXPECT_THAT(problem(), HasSubstr("damaged or cut short"));
}

TEST_F(PackageTest, NamesAForeignIndex) {
  write("index.json", R"({"format": "gguf", "version": 3})");
  EXPECT_THAT(problem(), HasSubstr("format \"gguf\" found"));
  write("index.json", R"({"weight_map": {}})");
  EXPECT_THAT(problem(), HasSubstr("belongs to another program"));
}

TEST_F(PackageTest, NamesAnotherVersion) {
  nlohmann::json index = read_json_file(file("index.json"));
  index["version"] = 7;
  write("index.json", index.dump());
  EXPECT_THAT(problem(), HasSubstr("version 7"));
}

TEST_F(PackageTest, NamesAnAlteredIndex) {
  nlohmann::json index = read_json_file(file("index.json"));
  index["num_experts"] = 9;
  write("index.json", index.dump());
  EXPECT_THAT(problem(), HasSubstr("altered or damaged"));
}

// A number of the index that no model has, under a checksum that fits.
TEST_F(PackageTest, NamesCountsThatWouldOverflow) {
  const nlohmann::json good = read_json_file(file("index.json"));
  const auto problem_with = [&](const char* key, uint64_t value) {
    nlohmann::json index = good;
    index[key] = value;
    index.erase("index_sha256");
    index["index_sha256"] = sha256_of_bytes(index.dump());
    write("index.json", index.dump());
    return problem();
  };
  EXPECT_THAT(problem_with("num_experts", uint64_t{1} << 63),
              HasSubstr("`num_experts` is missing or not a count"));
  EXPECT_THAT(problem_with("num_moe_layers", uint64_t{1} << 62), HasSubstr("`num_moe_layers`"));
  EXPECT_THAT(problem_with("dim", uint64_t{1} << 40), HasSubstr("`dim` is missing or not a count up to"));
}

TEST_F(PackageTest, NamesAnIndexThatNestsTooDeep) {
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  write("index.json", "{\"format\": " + deep + "}");
  EXPECT_THAT(problem(), HasSubstr("nests more than"));
}

TEST_F(PackageTest, NamesExpertsThatWereCutShortOrExtended) {
  const auto size = std::filesystem::file_size(file("experts.bin"));
  std::filesystem::resize_file(file("experts.bin"), size - 4096);
  EXPECT_THAT(problem(), HasSubstr("was cut short"));
  std::filesystem::resize_file(file("experts.bin"), size + 1);
  EXPECT_THAT(problem(), HasSubstr("belongs to another package"));
  std::filesystem::remove(file("experts.bin"));
  EXPECT_THAT(problem(), HasSubstr("experts.bin is missing"));
}

TEST_F(PackageTest, NamesTheExpertThatIsDamaged) {
  std::string bytes = read_file(file("experts.bin"));
  bytes[bytes.size() - 1] ^= 1;  // padding counts too: the block is what is read
  write("experts.bin", bytes);
  EXPECT_THAT(problem(), HasSubstr("expert 7 of MoE layer 2 is damaged"));
}

TEST_F(PackageTest, NamesADamagedResidentPart) {
  std::string bytes = read_file(file("resident.safetensors"));
  bytes[bytes.size() / 2] ^= 4;
  write("resident.safetensors", bytes);
  EXPECT_THAT(problem(), HasSubstr("resident.safetensors: the file was altered"));
  std::filesystem::remove(file("resident.safetensors"));
  EXPECT_THAT(problem(), HasSubstr("resident.safetensors is missing"));
}

TEST_F(PackageTest, NamesAConfigOfAnotherModel) {
  std::string config = read_file(file("config.yaml"));
  config.replace(config.find("num_experts: 8"), 14, "num_experts: 7");
  write("config.yaml", config);
  EXPECT_THAT(problem(), HasSubstr("belong to different packages"));
}

TEST(StreamingExport, RefusesADenseModel) {
  const testing::TemporaryFolder folder;
  const Model model = testing::tiny_model(testing::tiny_config(Architecture::kDense));
  EXPECT_THROW(export_streaming_package(model, folder / "package", ExpertEncoding::kFloat32),
               CheckpointError);
  EXPECT_FALSE(std::filesystem::exists(folder / "package"));
}

TEST(StreamingExport, KeepsWhatNamesBosAndEosOfATokenizerJson) {
  const testing::TemporaryFolder folder;
  const std::filesystem::path tokenizer = testing::write_chat_tokenizer(folder / "tokenizer");
  ModelConfig config = testing::tiny_config(Architecture::kSteppedMoe);
  config.vocab_size = 263;
  testing::write_checkpoint(folder / "checkpoint", testing::tiny_model(config), tokenizer);
  std::filesystem::copy_file(folder / "tokenizer/special_tokens_map.json",
                             folder / "checkpoint/special_tokens_map.json");
  export_streaming_package(folder / "checkpoint", folder / "package", ExpertEncoding::kFloat32);
  const StreamingPackage package(folder / "package");
  package.verify_files();
  const auto streamed = load_tokenizer(package.tokenizer_path().value());
  EXPECT_EQ(streamed->bos_id(), testing::kBeginOfText);
  EXPECT_EQ(streamed->eos_id(), testing::kEndOfText);
}

}  // namespace
}  // namespace smoe
