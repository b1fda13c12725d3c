#include "smoe/data/document_reader.h"

#include <zstd.h>

#include "data_test_support.h"

namespace smoe {
namespace {

using test::error_of;
using test::TemporaryFolder;
using test::write_text;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

std::vector<std::string> read_all(const std::vector<std::filesystem::path>& files,
                                  const std::string& key = "text") {
  DocumentReader reader(files);
  std::vector<std::string> texts;
  DocumentRecord record;
  while (reader.next(record)) {
    texts.push_back(document_text(std::move(record), key));
    record = {};
  }
  EXPECT_EQ(reader.bytes_read(), reader.total_bytes());
  return texts;
}

std::string compress(const std::string& text) {
  std::string result(ZSTD_compressBound(text.size()), '\0');
  result.resize(ZSTD_compress(result.data(), result.size(), text.data(), text.size(), 3));
  return result;
}

TEST(DocumentReader, ReadsJsonLines) {
  const TemporaryFolder folder;
  const auto path = write_text(
      folder / "a.jsonl",
      "{\"text\": \"one\\nline \\u00e9\"}\r\n\n  \n{\"id\": 1, \"text\": \"\"}\n{\"text\":\"last\"}");
  EXPECT_THAT(read_all({path}), ElementsAre("one\nline é", "", "last"));
}

TEST(DocumentReader, ReadsAnotherKeyAndDropsAByteOrderMark) {
  const TemporaryFolder folder;
  const auto path = write_text(folder / "a.ndjson", "\xEF\xBB\xBF{\"body\": \"x\"}\n");
  EXPECT_THAT(read_all({path}, "body"), ElementsAre("x"));
}

TEST(DocumentReader, ReadsATextFileAsOneDocument) {
  const TemporaryFolder folder;
  const auto path = write_text(folder / "a.txt", "first\n\nsecond\n");
  EXPECT_THAT(read_all({path}), ElementsAre("first\n\nsecond\n"));
}

TEST(DocumentReader, ReadsFilesInTheirOrder) {
  const TemporaryFolder folder;
  const auto b = write_text(folder / "b.txt", "b");
  const auto a = write_text(folder / "a.jsonl", "{\"text\":\"a1\"}\n{\"text\":\"a2\"}\n");
  EXPECT_THAT(read_all({b, a, b}), ElementsAre("b", "a1", "a2", "b"));
}

TEST(DocumentReader, ReadsZstdWithSeveralFramesAndBeyondItsBuffers) {
  const TemporaryFolder folder;
  std::string lines;
  std::vector<std::string> expected;
  for (int i = 0; i < 3000; ++i) {
    expected.push_back(std::to_string(i) + std::string(i % 1500, 'x'));
    lines += "{\"text\": \"" + expected.back() + "\"}\n";
  }
  const size_t half = lines.size() / 2;
  const auto path =
      write_text(folder / "a.jsonl.zst", compress(lines.substr(0, half)) + compress(lines.substr(half)));
  EXPECT_EQ(read_all({path}), expected);
}

TEST(DocumentReader, ReadsALineLongerThanItsBuffer) {
  const TemporaryFolder folder;
  const std::string text(3'000'000, 'y');
  EXPECT_THAT(read_all({write_text(folder / "a.jsonl", "{\"text\":\"" + text + "\"}\n{\"text\":\"z\"}\n")}),
              ElementsAre(text, "z"));
}

TEST(DocumentReader, NamesTheMissingKeyAndThoseFound) {
  const TemporaryFolder folder;
  const auto path = write_text(folder / "a.jsonl", "{\"text\":\"ok\"}\n{\"body\":\"x\",\"id\":3}\n");
  EXPECT_THAT(error_of([&] { read_all({path}); }),
              HasSubstr("a.jsonl:2:1: the key \"text\" is missing (found: body, id)"));
}

// One broken file each: name, content, and what the message must hold.
struct Broken {
  std::string name;
  std::string file;
  std::string content;
  std::string expected;
};

class BrokenInput : public ::testing::TestWithParam<Broken> {};

TEST_P(BrokenInput, GivesOneClearError) {
  const TemporaryFolder folder;
  const auto path = write_text(folder / GetParam().file, GetParam().content);
  EXPECT_THAT(error_of([&] { read_all({path}); }), HasSubstr(path.string() + GetParam().expected));
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, BrokenInput,
    ::testing::Values(
        Broken{"BadJson", "a.jsonl", "{\"text\":\"ok\"}\n{\"text\": oops}\n", ":2:10: not valid JSON"},
        Broken{"TruncatedJson", "a.jsonl", "{\"text\":\"ok\"}\n{\"text\": \"cut", ":2:14: not valid JSON"},
        Broken{"TwoObjects", "a.jsonl", "{\"text\":\"a\"} {\"text\":\"b\"}\n", ":1:14: not valid JSON"},
        Broken{"HugeNumber", "a.jsonl", "{\"text\": 1e999}\n", ":1:1: not usable JSON"},
        Broken{"TooDeep", "a.jsonl", std::string(1000, '[') + std::string(1000, ']'),
               ":1:1: the JSON nests more than 500 levels deep"},
        Broken{"NotAnObject", "a.jsonl", "\n[1, 2]\n", ":2:1: a JSON array instead of an object"},
        Broken{"WrongType", "a.jsonl", "{\"text\": 3}\n",
               ":1:1: \"text\" is a JSON number instead of a string"},
        Broken{"NullText", "a.jsonl", "{\"text\": null}\n",
               ":1:1: \"text\" is a JSON null instead of a string"},
        Broken{"InvalidUtf8", "a.jsonl", "{\"text\": \"a\xFFz\"}\n", ":1:12: invalid UTF-8 (byte 0xFF)"},
        Broken{"Latin1", "a.txt", "fine\ncaf\xE9 au lait", ":2:4: invalid UTF-8 (byte 0xE9)"},
        Broken{"LoneSurrogate", "a.jsonl", "{\"text\": \"\\ud800\"}\n", ":1:17: not valid JSON"},
        Broken{"Empty", "a.jsonl", "", ": the file is empty"},
        Broken{"OnlyBlankLines", "a.jsonl", "\n \n", ": the file holds no document"},
        Broken{"OnlyBlankText", "a.txt", " \n\n", ": the file holds no document"},
        Broken{"UnknownKind", "a.csv", "x", ": unknown kind of file; allowed are .jsonl"},
        Broken{"NotZstd", "a.jsonl.zst", "{\"text\":\"plain\"}\n", ": not a valid zstd file"}),
    [](const auto& each) { return each.param.name; });

TEST(DocumentReader, RefusesEveryTruncationOfAZstdFile) {
  const TemporaryFolder folder;
  const std::string whole = compress("{\"text\": \"some text that is long enough\"}\n");
  for (size_t size = 5; size < whole.size(); ++size) {
    const auto path = write_text(folder / "a.jsonl.zst", whole.substr(0, size));
    EXPECT_THAT(error_of([&] { read_all({path}); }), HasSubstr("a.jsonl.zst: truncated")) << size;
  }
}

TEST(DocumentReader, RefusesADamagedZstdFile) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 2000; ++i) {
    text += "{\"text\": \"" + std::to_string(i * i) + "\"}\n";
  }
  std::string bytes = compress(text);
  bytes[bytes.size() / 2] = static_cast<char>(~bytes[bytes.size() / 2]);
  bytes[bytes.size() / 3] = static_cast<char>(~bytes[bytes.size() / 3]);
  const auto path = write_text(folder / "a.jsonl.zst", bytes);
  EXPECT_THAT(error_of([&] { read_all({path}); }), HasSubstr("a.jsonl.zst"));
}

TEST(DocumentReader, ChecksAllFilesBeforeReadingTheFirst) {
  const TemporaryFolder folder;
  const auto good = write_text(folder / "a.txt", "x");
  EXPECT_THAT(error_of([&] {
                DocumentReader({good, folder / "none.txt"});
              }),
              EndsWith("none.txt: file not found"));
  EXPECT_THAT(error_of([&] { DocumentReader({good, folder.path()}); }), HasSubstr("is a folder"));
  EXPECT_THAT(error_of([&] { DocumentReader({}); }), HasSubstr("no input files"));
}

}  // namespace
}  // namespace smoe
