#include "smoe/core/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <utility>

#include "smoe/core/error.h"
#include "temporary_folder.h"

namespace smoe {
namespace {

using ::testing::HasSubstr;

size_t count_files(const std::filesystem::path& folder) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

template <class ErrorType, class Action>
std::string message_of(const Action& action) {
  try {
    action();
  } catch (const ErrorType& error) {
    return error.what();
  }
  return "no error of this type";
}

// While it lives, writing past `bytes` of any file fails, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &old_);
    rlimit limit = old_;
    limit.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit old_{};
  void (*handler_)(int);
};

TEST(ReadFile, ReturnsAllBytes) {
  const testing::TemporaryFolder folder;
  const std::string bytes("a\0b\r\n\xff", 6);
  EXPECT_EQ(read_file(folder.write("x", bytes)), bytes);
  EXPECT_EQ(read_file(folder.write("empty", "")), "");
  EXPECT_FALSE(read_file("/proc/self/status").empty()) << "a file whose size is given as 0";
}

TEST(ReadFile, ErrorsNameThePath) {
  EXPECT_THAT(message_of<DataError>([] { read_file("/no/such/file"); }),
              HasSubstr("/no/such/file: cannot open the file: No such file"));
  const testing::TemporaryFolder folder;
  EXPECT_THAT(message_of<DataError>([&] { read_file(folder.path()); }),
              HasSubstr("expected a file, found a folder"));
}

TEST(WriteFileAtomically, ReplacesTheFileAndLeavesNothingElse) {
  const testing::TemporaryFolder folder;
  const auto path = folder.write("x", "old");
  write_file_atomically(path, "new");
  EXPECT_EQ(read_file(path), "new");
  EXPECT_EQ(count_files(folder.path()), 1u);
}

TEST(WriteFileAtomically, AFailureLeavesTheOldFile) {
  const testing::TemporaryFolder folder;
  const auto path = folder.write("x", "old");
  const std::string large(100000, 'n');
  std::string message;
  {
    const FileSizeLimit limit(1000);
    message = message_of<Error>([&] { write_file_atomically(path, large); });
  }
  EXPECT_THAT(message, HasSubstr(path.string() + ": cannot write the file: File too large"));
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(count_files(folder.path()), 1u);
}

TEST(WriteFileAtomically, ErrorsNameThePath) {
  EXPECT_THAT(message_of<Error>([] { write_file_atomically("/no/such/folder/x", ""); }),
              HasSubstr("/no/such/folder/x: cannot write the file: No such file"));
  const testing::TemporaryFolder folder;
  EXPECT_THAT(message_of<Error>([&] { write_file_atomically(folder.path(), ""); }),
              HasSubstr("it is a folder"));
}

TEST(AtomicFile, PiecesOfAnySizeArriveInOrder) {
  const testing::TemporaryFolder folder;
  std::string expected;
  AtomicFile file(folder / "x");
  // Around the size of a buffer, from both sides.
  for (const size_t size : {1, 65535, 1, 1, 65536, 65537, 0, 300000, 7}) {
    const std::string piece(size, static_cast<char>('a' + expected.size() % 26));
    file.write(piece);
    expected += piece;
  }
  EXPECT_EQ(file.size(), static_cast<int64_t>(expected.size()));
  file.finish();
  EXPECT_EQ(read_file(file.temporary_path()), expected);
  EXPECT_FALSE(std::filesystem::exists(folder / "x"));
  file.commit();
  EXPECT_EQ(read_file(folder / "x"), expected);
  EXPECT_EQ(count_files(folder.path()), 1u);
}

TEST(AtomicFile, AnUncommittedFileLeavesTheOldOne) {
  const testing::TemporaryFolder folder;
  const auto path = folder.write("x", "old");
  {
    AtomicFile file(path);
    file.write("new");
    file.finish();
    EXPECT_EQ(file.temporary_path().filename().string().front(), '.') << "hidden from listings";
  }
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(count_files(folder.path()), 1u);
}

TEST(AtomicFile, WhatAKilledProcessLeftIsRemoved) {
  const testing::TemporaryFolder folder;
  const auto path = folder / "x";
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    AtomicFile file(path);
    file.write("half");
    ::kill(::getpid(), SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
  ASSERT_EQ(count_files(folder.path()), 1u);
  write_file_atomically(path, "whole");
  EXPECT_EQ(read_file(path), "whole");
  EXPECT_EQ(count_files(folder.path()), 1u);
}

TEST(AtomicFile, FilesOfLivingWritersAndOfOthersStay) {
  const testing::TemporaryFolder folder;
  AtomicFile first(folder / "x");
  AtomicFile other(folder / "x.y");
  folder.write(".x.tmp-mine", "not named by this class");
  folder.write(".xx.tmp-1-0", "of another file");
  write_file_atomically(folder / "x", "second");
  EXPECT_EQ(count_files(folder.path()), 5u);
  first.write("first");
  first.commit();
  other.commit();
  EXPECT_EQ(read_file(folder / "x"), "first") << "the last commit counts";
}

TEST(PrepareOutputFile, MakesTheFolderAndKeepsTheFile) {
  const testing::TemporaryFolder folder;
  prepare_output_file(folder / "deep/er/x.json");
  EXPECT_EQ(count_files(folder / "deep/er"), 0u);
  const auto path = folder.write("x", "old");
  prepare_output_file(path);
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(count_files(folder.path()), 2u);
}

TEST(PrepareOutputFile, RefusesWhereNothingCanBeWritten) {
  const testing::TemporaryFolder folder;
  folder.write("file", "");
  EXPECT_THAT(message_of<Error>([&] { prepare_output_file(folder / "file/x.json"); }),
              HasSubstr("file: cannot make the folder: "));
  EXPECT_THAT(message_of<Error>([&] { prepare_output_file(folder.path()); }), HasSubstr("it is a folder"));
  EXPECT_THAT(message_of<Error>([] { prepare_output_file("/proc/x.json"); }),
              HasSubstr("/proc/x.json: cannot write the file: "));
}

// The vectors of FIPS 180-2 and the empty message.
TEST(Sha256, MatchesThePublishedVectors) {
  EXPECT_EQ(sha256_of_bytes(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_of_bytes("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_of_bytes("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_of_bytes(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, AFileHashesAsItsBytes) {
  const testing::TemporaryFolder folder;
  const std::string bytes(3000001, 'q');  // several blocks and a rest
  EXPECT_EQ(sha256_of_file(folder.write("x", bytes)), sha256_of_bytes(bytes));
  EXPECT_THROW(sha256_of_file("/no/such/file"), DataError);
}

TEST(MappedFile, ShowsTheBytesAndMoves) {
  const testing::TemporaryFolder folder;
  MappedFile file(folder.write("x", "hello"));
  MappedFile moved(std::move(file));
  ASSERT_EQ(moved.bytes().size(), 5u);
  EXPECT_EQ(static_cast<char>(moved.bytes()[4]), 'o');
  MappedFile empty(folder.write("empty", ""));
  EXPECT_TRUE(empty.bytes().empty());
  empty = std::move(moved);
  EXPECT_EQ(empty.bytes().size(), 5u);
  EXPECT_EQ(empty.path().filename(), "x");
  EXPECT_THAT(message_of<DataError>([] { MappedFile("/no/such/file"); }),
              HasSubstr("/no/such/file: cannot open"));
}

TEST(AtomicFolder, AppearsOnlyWhenCommitted) {
  const testing::TemporaryFolder folder;
  const auto target = folder.path() / "deep" / "step-1";
  AtomicFolder atomic(target);
  write_file_atomically(atomic.temporary_path() / "weights", "w");
  std::filesystem::create_directory(atomic.temporary_path() / "tokenizer");
  write_file_atomically(atomic.temporary_path() / "tokenizer" / "model", "t");
  EXPECT_FALSE(std::filesystem::exists(target));
  atomic.commit();
  EXPECT_EQ(read_file(target / "tokenizer" / "model"), "t");
  EXPECT_EQ(count_files(target.parent_path()), 1u);
}

TEST(AtomicFolder, LeavesNothingWhenItIsNotCommitted) {
  const testing::TemporaryFolder folder;
  {
    const AtomicFolder atomic(folder.path() / "step-1");
    write_file_atomically(atomic.temporary_path() / "weights", "w");
  }
  EXPECT_EQ(count_files(folder.path()), 0u);
}

TEST(AtomicFolder, NeverReplacesAFolder) {
  const testing::TemporaryFolder folder;
  const auto file = folder.write("step-1/weights", "old");
  EXPECT_THAT(message_of<Error>([&] { AtomicFolder(folder.path() / "step-1/"); }),
              HasSubstr("exists already"));
  // Another writer was faster.
  AtomicFolder atomic(folder.path() / "step-2");
  const auto other = folder.write("step-2/weights", "other");
  EXPECT_THAT(message_of<Error>([&] { atomic.commit(); }), HasSubstr("step-2: cannot rename"));
  EXPECT_EQ(read_file(other), "other");
  EXPECT_EQ(read_file(file), "old");
}

}  // namespace
}  // namespace smoe
