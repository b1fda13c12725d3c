#include "smoe/data/indexed_dataset.h"

#include <cstring>

#include "data_test_support.h"

namespace smoe {
namespace {

using test::counting;
using test::error_of;
using test::TemporaryFolder;
using test::write_store;
using test::write_text;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::filesystem::path kGolden = std::filesystem::path(SMOE_SOURCE_DIR) / "tests/golden/indexed_dataset";

TEST(IndexedDataset, ReadsTheUint16GoldenFile) {
  const IndexedDataset dataset(kGolden / "uint16");
  EXPECT_EQ(dataset.token_type(), TokenType::kUint16);
  EXPECT_EQ(dataset.num_sequences(), 5);
  ASSERT_EQ(dataset.num_documents(), 4);
  EXPECT_EQ(dataset.num_tokens(), 11);
  EXPECT_THAT(dataset.document(0), ElementsAre(1, 2, 3));
  EXPECT_THAT(dataset.document(1), ElementsAre(65534, 7, 8));
  EXPECT_THAT(dataset.document(2), IsEmpty());
  EXPECT_THAT(dataset.document(3), ElementsAre(9, 10, 11, 12, 2));
}

TEST(IndexedDataset, ReadsTheInt32GoldenFile) {
  const IndexedDataset dataset(kGolden / "int32");
  EXPECT_EQ(dataset.token_type(), TokenType::kInt32);
  ASSERT_EQ(dataset.num_documents(), 3);
  EXPECT_THAT(dataset.document(0), ElementsAre(128000, 5));
  EXPECT_THAT(dataset.document(2), ElementsAre(70000, 1, 2, 3, 4));
  std::vector<int64_t> ids(3);
  dataset.read(1, 3, ids.data());
  EXPECT_THAT(ids, ElementsAre(5, 6, 70000));
}

// Documents of one sequence each are all that we write; for those the format leaves no freedom.
TEST(IndexedDatasetWriter, WritesTheGoldenBytes) {
  const TemporaryFolder folder;
  IndexedDatasetWriter writer(folder / "sub/x", TokenType::kUint16);
  writer.add_document(std::vector<int32_t>{1, 2});
  writer.add_document(std::vector<int32_t>{300});
  writer.finish();
  EXPECT_FALSE(std::filesystem::exists(folder / "sub/x.bin")) << "before commit nothing has its final name";
  writer.commit();
  EXPECT_EQ(read_file(folder / "sub/x.bin"), std::string("\1\0\2\0\x2c\1", 6));
  std::string index("MMIDIDX\0\0\1\0\0\0\0\0\0\0\x08", 18);
  index += std::string("\2\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0", 16);                  // counts
  index += std::string("\2\0\0\0\1\0\0\0", 8);                                   // lengths
  index += std::string("\0\0\0\0\0\0\0\0\4\0\0\0\0\0\0\0", 16);                  // pointers
  index += std::string("\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0", 24);  // documents
  EXPECT_EQ(read_file(folder / "sub/x.idx"), index);
}

TEST(IndexedDatasetWriter, LeavesNothingBehindWithoutCommit) {
  const TemporaryFolder folder;
  { IndexedDatasetWriter(folder / "x", TokenType::kInt32).add_document(counting(0, 10)); }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(IndexedDatasetWriter, RefusesIdsThatTheTypeCannotHold) {
  const TemporaryFolder folder;
  IndexedDatasetWriter writer(folder / "x", TokenType::kUint16);
  EXPECT_THAT(error_of([&] { writer.add_document(std::vector<int32_t>{65536}); }),
              HasSubstr("id 65536 does not fit"));
  EXPECT_THAT(error_of([&] { writer.add_document(std::vector<int32_t>{-1}); }),
              HasSubstr("id -1 does not fit"));
}

TEST(IndexedDataset, ChoosesTheSmallestType) {
  EXPECT_EQ(smallest_token_type(65535), TokenType::kUint16);
  EXPECT_EQ(smallest_token_type(65536), TokenType::kInt32);
}

// Each way to damage the files of a store of two documents (3 and 2 tokens, uint16), with the one error it
// must give.
struct Damage {
  std::string name;
  std::string file;  // suffix
  std::function<void(std::string&)> apply;
  std::string expected;
};

template <class T>
std::function<void(std::string&)> put(size_t offset, T value) {
  return [=](std::string& bytes) { std::memcpy(bytes.data() + offset, &value, sizeof(T)); };
}

std::function<void(std::string&)> substitute(const std::string& from, const std::string& to) {
  return [=](std::string& text) {
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
  };
}

class DamagedStore : public ::testing::TestWithParam<Damage> {};

TEST_P(DamagedStore, GivesOneClearError) {
  const TemporaryFolder folder;
  write_store(folder / "x", {{5, 6, 7}, {8, 9}});
  const std::filesystem::path path = with_suffix(folder / "x", GetParam().file);
  std::string bytes = read_file(path);
  GetParam().apply(bytes);
  write_text(path, bytes);
  const std::string message = error_of([&] { verify_token_store(TokenStore(folder / "x")); });
  EXPECT_THAT(message, HasSubstr(GetParam().expected));
  EXPECT_THAT(message, HasSubstr(path.filename().string()));
}

// Offsets in the index: version 9, type 17, sequences 18, borders 26, lengths 34, pointers 42, documents 58,
// end 82.
INSTANTIATE_TEST_SUITE_P(
    Kinds, DamagedStore,
    ::testing::Values(
        Damage{"Magic", ".idx", put(0, 'X'), "does not start with MMIDIDX"},
        Damage{"Version", ".idx", put(9, uint64_t{2}), "format version 2"},
        Damage{"ForeignType", ".idx", put(17, uint8_t{5}), "code 5 (int64) is not supported"},
        Damage{"UnknownType", ".idx", put(17, uint8_t{99}), "code 99 (unknown) is not supported"},
        Damage{"WrongType", ".idx", put(17, uint8_t{4}),
               "points to byte 6, but the sequences before it end at byte 12"},
        Damage{"ShortHeader", ".idx", [](std::string& bytes) { bytes.resize(20); },
               "too short for the header"},
        Damage{"EmptyIndex", ".idx", [](std::string& bytes) { bytes.clear(); }, "0 bytes, too short"},
        Damage{"TruncatedIndex", ".idx", [](std::string& bytes) { bytes.resize(80); },
               "need 82 bytes, the file has 80"},
        Damage{"TrailingIndex", ".idx", [](std::string& bytes) { bytes += "abc"; },
               "3 unknown bytes after the index"},
        Damage{"Multimodal", ".idx", [](std::string& bytes) { bytes += "ab"; }, "multimodal"},
        Damage{"HugeCount", ".idx", put(18, ~uint64_t{0}),
               "truncated or damaged: 18446744073709551615 sequences"},
        Damage{"NoBorders", ".idx", put(26, uint64_t{0}), "no document borders"},
        Damage{"NegativeLength", ".idx", put(34, int32_t{-3}), "negative length -3"},
        Damage{"PointerBack", ".idx", put(50, int64_t{2}), "sequence 1 points to byte 2"},
        Damage{"FirstBorder", ".idx", put(58, int64_t{1}), "first document border is 1, not 0"},
        Damage{"BorderBack", ".idx", put(66, int64_t{-1}), "border 1 is -1, before border 0"},
        Damage{"BorderBeyond", ".idx", put(66, int64_t{7}), "is 7, but there are 2 sequences"},
        Damage{"LastBorder", ".idx", put(74, int64_t{1}), "last document ends at sequence 1"},
        Damage{"TruncatedTokens", ".bin", [](std::string& bytes) { bytes.resize(9); }, "truncated"},
        Damage{"TrailingTokens", ".bin", [](std::string& bytes) { bytes += "xx"; },
               "2 bytes more than the index"},
        Damage{"IdBeyondVocabulary", ".bin", put(4, uint16_t{1000}),
               "token 2 is id 1000, outside the vocabulary"},
        Damage{"ChangedTokens", ".bin", put(4, uint16_t{77}), "the content has changed"},
        Damage{"BadJson", ".json", [](std::string& text) { text.resize(text.size() / 2); }, "x.json"},
        Damage{"NotAnObject", ".json", [](std::string& text) { text = "[1]"; },
               "a JSON array instead of an object"},
        Damage{"MissingKey", ".json", substitute("\"tokens\"", "\"tokenz\""),
               "the key \"tokens\" is missing"},
        Damage{"WrongKeyType", ".json", substitute("\"tokens\": 5", "\"tokens\": \"5\""),
               "\"tokens\" has the wrong type"},
        Damage{"OtherFormat", ".json", substitute("smoe-token-store", "other"), "format \"other\""},
        Damage{"NewerVersion", ".json", substitute("\"version\": 1", "\"version\": 9"), "version 9"},
        Damage{"OtherTokens", ".json", substitute("\"tokens\": 5", "\"tokens\": 6"), "6 tokens are recorded"},
        Damage{"OtherDocuments", ".json", substitute("\"documents\": 2", "\"documents\": 3"),
               "3 documents are recorded"},
        Damage{"OtherTypeName", ".json", substitute("uint16", "int32"),
               "int32 is recorded, but the index says uint16"}),
    [](const auto& each) { return each.param.name; });

TEST(TokenStore, NamesAMissingFile) {
  const TemporaryFolder folder;
  for (const std::string suffix : {".bin", ".idx", ".json"}) {
    write_store(folder / "x", {{5, 6, 7}});
    std::filesystem::remove(with_suffix(folder / "x", suffix));
    EXPECT_THAT(error_of([&] { TokenStore(folder / "x"); }), HasSubstr("x" + suffix));
  }
}

TEST(TokenStore, IsVerifiedWhenIntact) {
  const TemporaryFolder folder;
  write_store(folder / "x", {{5, 6, 7}, {8, 9}});
  EXPECT_NO_THROW(verify_token_store(TokenStore(folder / "x")));
}

TEST(TokenStore, ReadsBackItsDescription) {
  const TemporaryFolder folder;
  write_store(folder / "x", {{5, 6, 7}, {8, 9}});
  const TokenStoreInfo info = read_token_store_info(folder / "x");
  EXPECT_EQ(info.tokenizer_hash, test::kTestHash);
  EXPECT_EQ(info.eos_id, 1);
  EXPECT_EQ(info.bin_sha256, sha256_of_file(folder / "x.bin"));
  EXPECT_EQ(info.idx_sha256, sha256_of_file(folder / "x.idx"));
  EXPECT_DOUBLE_EQ(info.bytes_per_token(), 4.0);
}

TEST(TokenStore, RefusesAnotherTokenizerAndASmallerVocabulary) {
  const TemporaryFolder folder;
  write_store(folder / "x", {{5, 6, 7}});
  const TokenStore store(folder / "x");
  EXPECT_NO_THROW(check_store_fits(store, test::kTestHash, 1000));
  EXPECT_NO_THROW(check_store_fits(store, test::kTestHash, 1024)) << "a padded vocabulary is fine";
  EXPECT_THAT(error_of([&] { check_store_fits(store, std::string(64, 'b'), 1000); }),
              HasSubstr("another tokenizer (SHA-256 aaaaaaaaaaaa..., this run has bbbbbbbbbbbb...)"));
  EXPECT_THAT(error_of([&] { check_store_fits(store, test::kTestHash, 999); }),
              HasSubstr("vocab_size 1000 is larger than the 999 entries"));
}

TEST(TokenStore, AdoptsADatasetMadeElsewhere) {
  const TemporaryFolder folder;
  for (const std::string suffix : {".bin", ".idx"}) {
    std::filesystem::copy_file(with_suffix(kGolden / "uint16", suffix), with_suffix(folder / "x", suffix));
  }
  EXPECT_THAT(error_of([&] { adopt_indexed_dataset(folder / "x", test::ByteTokenizer()); }),
              HasSubstr("token 3 is id 65534, outside the vocabulary [0, 258)"));
  const test::ByteTokenizer tokenizer;
  write_store(folder / "y", {{70, 71, 1}, {72, 1}}, 258);
  std::filesystem::remove(folder / "y.json");
  const TokenStoreInfo info = adopt_indexed_dataset(folder / "y", tokenizer);
  EXPECT_EQ(info.text_bytes, 3) << "EOS is no text";
  EXPECT_NO_THROW(verify_token_store(TokenStore(folder / "y")));
  EXPECT_THAT(error_of([&] { adopt_indexed_dataset(folder / "y", tokenizer); }), HasSubstr("exists already"));
}

}  // namespace
}  // namespace smoe
