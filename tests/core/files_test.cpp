#include "smoe/core/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <utility>

#include "core/temporary_folder.h"
#include "smoe/core/error.h"

namespace smoe {
namespace {

using testing::HasSubstr;

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
  const TemporaryFolder folder;
  const std::string bytes("a\0b\r\n\xff", 6);
  EXPECT_EQ(read_file(folder.write("x", bytes)), bytes);
  EXPECT_EQ(read_file(folder.write("empty", "")), "");
  EXPECT_FALSE(read_file("/proc/self/status").empty()) << "a file whose size is given as 0";
}

TEST(ReadFile, ErrorsNameThePath) {
  EXPECT_THAT(message_of<DataError>([] { read_file("/no/such/file"); }),
              HasSubstr("/no/such/file: cannot open the file: No such file"));
  const TemporaryFolder folder;
  EXPECT_THAT(message_of<DataError>([&] { read_file(folder.path()); }),
              HasSubstr("expected a file, found a folder"));
}

TEST(WriteFileAtomically, ReplacesTheFileAndLeavesNothingElse) {
  const TemporaryFolder folder;
  const auto path = folder.write("x", "old");
  write_file_atomically(path, "new");
  EXPECT_EQ(read_file(path), "new");
  EXPECT_EQ(count_files(folder.path()), 1u);
}

TEST(WriteFileAtomically, AFailureLeavesTheOldFile) {
  const TemporaryFolder folder;
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
  const TemporaryFolder folder;
  EXPECT_THAT(message_of<Error>([&] { write_file_atomically(folder.path(), ""); }),
              HasSubstr("it is a folder"));
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
  const TemporaryFolder folder;
  const std::string bytes(3000001, 'q');  // several blocks and a rest
  EXPECT_EQ(sha256_of_file(folder.write("x", bytes)), sha256_of_bytes(bytes));
  EXPECT_THROW(sha256_of_file("/no/such/file"), DataError);
}

TEST(MappedFile, ShowsTheBytesAndMoves) {
  const TemporaryFolder folder;
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
  const TemporaryFolder folder;
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
  const TemporaryFolder folder;
  {
    const AtomicFolder atomic(folder.path() / "step-1");
    write_file_atomically(atomic.temporary_path() / "weights", "w");
  }
  EXPECT_EQ(count_files(folder.path()), 0u);
}

TEST(AtomicFolder, NeverReplacesAFolder) {
  const TemporaryFolder folder;
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
