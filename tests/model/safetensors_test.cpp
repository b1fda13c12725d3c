// The reader against a file of the public Python library (tests/golden/make_safetensors.py), the writer
// against the reader, and damaged headers of many kinds. tests/golden/check_safetensors.py opens our files
// the other way round.
#include "smoe/model/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "temporary_folder.h"

namespace smoe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::filesystem::path golden_file() {
  return std::filesystem::path(SMOE_SOURCE_DIR) / "tests/golden/safetensors_python.safetensors";
}

template <class T>
std::vector<T> values(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  return std::vector<T>(flat.const_data_ptr<T>(), flat.const_data_ptr<T>() + flat.numel());
}

// A file with the given header text and `data_bytes` zero bytes after it.
void write_raw(const std::filesystem::path& path, const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  std::ofstream(path, std::ios::binary) << bytes << header << std::string(data_bytes, '\0');
}

std::string error_of(const std::filesystem::path& path) {
  try {
    SafetensorsFile file(path);
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Safetensors, ReadsEveryDtypeOfThePythonLibrary) {
  const SafetensorsFile file(golden_file());
  EXPECT_EQ(values<double>(file.tensor("double")), (std::vector<double>{1.5, -2.25, 1e300}));
  EXPECT_EQ(values<float>(file.tensor("float")), (std::vector<float>{0, 0.25, 0.5, 0.75, 1, 1.25}));
  EXPECT_EQ(values<at::Half>(file.tensor("half")), (std::vector<at::Half>{0.5, -65504.0}));
  EXPECT_EQ(values<int64_t>(file.tensor("long")), (std::vector<int64_t>{-(int64_t{1} << 62), 7}));
  EXPECT_EQ(values<int32_t>(file.tensor("int")), (std::vector<int32_t>{-(1 << 30), 7}));
  EXPECT_EQ(values<int16_t>(file.tensor("short")), (std::vector<int16_t>{-32768, 7}));
  EXPECT_EQ(values<int8_t>(file.tensor("char")), (std::vector<int8_t>{-128, 127}));
  EXPECT_EQ(values<uint8_t>(file.tensor("byte")), (std::vector<uint8_t>{0, 255, 3}));
  EXPECT_EQ(values<bool>(file.tensor("bool")), (std::vector<bool>{true, false}));
}

TEST(Safetensors, ReadsShapesAndMetadataOfThePythonLibrary) {
  const SafetensorsFile file(golden_file());
  EXPECT_EQ(file.names().size(), 11U);
  EXPECT_EQ(file.tensor("float").sizes(), at::IntArrayRef({2, 3}));
  EXPECT_EQ(file.tensor("empty").sizes(), at::IntArrayRef({0, 4}));
  EXPECT_EQ(file.tensor("scalar").dim(), 0);
  EXPECT_EQ(file.tensor("scalar").item<float>(), 3.5F);
  EXPECT_EQ(file.metadata().at("made_by"), "safetensors");
  EXPECT_EQ(file.metadata().at("note"), "f\u00fcr Tests");
}

TEST(Safetensors, ReadsBackWhatItWroteInTheSameOrder) {
  const testing::TemporaryFolder folder;
  at::manual_seed(3);
  const TensorList tensors = {
      {"z", at::randn({3, 5})},
      {"odd bool", at::rand({3}) > 0.5},  // leaves what follows without alignment
      {"bfloat16", at::randn({2, 2}).to(at::kBFloat16)},
      {"transposed", at::randn({4, 3}, at::kDouble).t()},
      {"empty", at::empty({0, 2}, at::kLong)},
      {"scalar", at::scalar_tensor(2.5)},
  };
  write_safetensors(folder / "file", tensors, {{"key", "value"}});
  const SafetensorsFile file(folder / "file");
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) {
    names.push_back(name);
    EXPECT_EQ(file.tensor(name).scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(at::equal(file.tensor(name), tensor)) << name;
  }
  EXPECT_EQ(file.names(), names);
  EXPECT_EQ(file.metadata().at("key"), "value");
}

TEST(Safetensors, TensorsOutliveTheFileObject) {
  const testing::TemporaryFolder folder;
  write_safetensors(folder / "file", {{"a", at::full({1000}, 7.0)}});
  at::Tensor tensor;
  { tensor = SafetensorsFile(folder / "file").tensor("a"); }
  EXPECT_EQ(tensor.sum().item<float>(), 7000.0F);
}

TEST(Safetensors, DataStartAlignedToEightBytes) {
  const testing::TemporaryFolder folder;
  for (const char* name : {"a", "ab", "abc", "abcd", "abcde"}) {
    write_safetensors(folder / "file", {{name, at::ones({1})}});
    const std::string bytes = read_file(folder / "file");
    uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof(length));
    EXPECT_EQ(length % 8, 0U) << name;
  }
}

TEST(Safetensors, FailedWriteLeavesTheOldFileAlone) {
  const testing::TemporaryFolder folder;
  write_safetensors(folder / "file", {{"a", at::ones({2})}});
  EXPECT_THROW(write_safetensors(folder / "file", {{"b", at::zeros({2}, at::kComplexFloat)}}), Error);
  EXPECT_THROW(write_safetensors(folder / "file", {{"b", at::zeros({2})}, {"b", at::zeros({2})}}), Error);
  EXPECT_TRUE(at::equal(SafetensorsFile(folder / "file").tensor("a"), at::ones({2})));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(Safetensors, WriteIntoMissingFolderNamesThePath) {
  const testing::TemporaryFolder folder;
  try {
    write_safetensors(folder / "absent/file", {{"a", at::ones({1})}});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("absent/file"), HasSubstr("cannot write"), HasSubstr("No such file")));
  }
}

TEST(Safetensors, AbsentTensorAndAbsentFileAreNamed) {
  try {
    SafetensorsFile(golden_file()).tensor("nothing");
    FAIL() << "no error";
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("safetensors_python.safetensors"), HasSubstr("\"nothing\"")));
  }
  EXPECT_THAT(error_of("/nowhere/model.safetensors"), HasSubstr("/nowhere/model.safetensors"));
}

struct Damage {
  std::string label;
  std::string header;
  size_t data_bytes;
  std::string expected;
};

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"weight":)" + entry(dtype, shape, offsets) + "}";
}

class DamagedSafetensors : public ::testing::TestWithParam<Damage> {};

TEST_P(DamagedSafetensors, IsRefusedWithPathTensorAndReason) {
  const testing::TemporaryFolder folder;
  write_raw(folder / "model.safetensors", GetParam().header, GetParam().data_bytes);
  EXPECT_THAT(error_of(folder / "model.safetensors"),
              AllOf(HasSubstr((folder / "model.safetensors").string()), HasSubstr(GetParam().expected)));
}

const std::string kF32 = R"("F32")";
INSTANTIATE_TEST_SUITE_P(
    Headers, DamagedSafetensors,
    ::testing::Values(
        Damage{"NotJson", "{\"weight\": oops", 0, "the header is not JSON"},
        Damage{"NotAnObject", "[1, 2]", 0, "not an object"},
        Damage{"TooDeep", "{\"x\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}", 0,
               "nests more than 500 levels deep"},
        Damage{"EntryNotAnObject", R"({"weight": 3})", 0, "tensor \"weight\": its entry is a JSON number"},
        Damage{"NoDtype", R"({"weight":{"shape":[1],"data_offsets":[0,4]}})", 4,
               "\"weight\": \"dtype\" is missing"},
        Damage{"NoShape", R"({"weight":{"dtype":"F32","data_offsets":[0,4]}})", 4,
               "\"weight\": \"shape\" is missing"},
        Damage{"NoOffsets", R"({"weight":{"dtype":"F32","shape":[1]}})", 4, "\"data_offsets\" is missing"},
        Damage{"UnknownDtype", one(R"("F8_E4M3")", "[4]", "[0,4]"), 4,
               "\"weight\": dtype \"F8_E4M3\" is not supported"},
        Damage{"DtypeNotText", one("32", "[1]", "[0,4]"), 4, "dtype 32 is not supported"},
        Damage{"ShapeNotAList", one(kF32, "1", "[0,4]"), 4, "\"weight\": shape is 1, not a list"},
        Damage{"NegativeDimension", one(kF32, "[-1]", "[0,4]"), 4, "a dimension of shape is -1"},
        Damage{"FractionalDimension", one(kF32, "[1.5]", "[0,4]"), 4, "a dimension of shape is 1.5"},
        Damage{"ShapeOverflow", one(kF32, "[4294967296,4294967296]", "[0,0]"), 0, "does not fit 64 bits"},
        Damage{"OffsetsNotAPair", one(kF32, "[1]", "[0]"), 4, "not a pair [begin, end]"},
        Damage{"OffsetNegative", one(kF32, "[1]", "[-4,0]"), 4, "the begin of data_offsets is -4"},
        Damage{"OffsetsReversed", one(kF32, "[1]", "[4,0]"), 4, "end at 0 before they begin at 4"},
        Damage{"SizeDisagrees", one(kF32, "[2]", "[0,4]"), 4,
               "\"weight\": data_offsets span 4 bytes, but its dtype "
               "and shape need 8"},
        Damage{"BeyondTheEnd", one(kF32, "[2]", "[0,8]"), 4,
               "\"weight\": its data end at 8, but the file holds 4"},
        Damage{"BytesLeftOver", one(kF32, "[1]", "[0,4]"), 7, "3 bytes follow the last tensor"},
        Damage{"Gap", one(kF32, "[1]", "[4,8]"), 8, "\"weight\": its data begin at 4"},
        Damage{"Overlap",
               R"({"a":)" + entry(kF32, "[2]", "[0,8]") + R"(,"b":)" + entry(kF32, "[1]", "[4,8]") + "}", 8,
               "\"b\": its data begin at 4, but the tensor before it ends at 8 (overlap)"},
        Damage{"DuplicateName",
               R"({"a":)" + entry(kF32, "[1]", "[0,4]") + R"(,"a":)" + entry(kF32, "[1]", "[4,8]") + "}", 8,
               "\"a\": the name occurs twice"},
        Damage{"MetadataNotText", R"({"__metadata__":{"step":3}})", 0,
               "__metadata__ holds 3 under \"step\""}),
    [](const auto& instance) { return instance.param.label; });

TEST(Safetensors, DamagedLengthFieldIsRefused) {
  const testing::TemporaryFolder folder;
  const auto with_length = [&](uint64_t length) {
    std::string bytes(sizeof(length), '\0');
    std::memcpy(bytes.data(), &length, sizeof(length));
    std::ofstream(folder / "file", std::ios::binary) << bytes << "{}";
    return error_of(folder / "file");
  };
  EXPECT_THAT(with_length(3), HasSubstr("the header length is 3, but only 2 bytes follow"));
  EXPECT_THAT(with_length(uint64_t{1} << 60), HasSubstr("above the limit"));
  std::ofstream(folder / "file", std::ios::binary) << "short";
  EXPECT_THAT(error_of(folder / "file"), HasSubstr("it has 5 bytes"));
}

TEST(Safetensors, FileCutShortAnywhereIsRefused) {
  const testing::TemporaryFolder folder;
  write_safetensors(folder / "whole", {{"a", at::randn({3})}, {"b", at::randn({2})}});
  const std::string bytes = read_file(folder / "whole");
  for (size_t size = 0; size < bytes.size(); ++size) {
    std::ofstream(folder / "cut", std::ios::binary) << bytes.substr(0, size);
    EXPECT_NE(error_of(folder / "cut"), "no error") << size << " of " << bytes.size() << " bytes";
  }
}

}  // namespace
}  // namespace smoe
