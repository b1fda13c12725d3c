#include "smoe/data/store_report.h"

#include "data_test_support.h"

namespace smoe {
namespace {

using test::ByteTokenizer;
using test::error_of;
using test::TemporaryFolder;
using test::write_store;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(StoreReport, ShowsCountsIdsAndText) {
  const TemporaryFolder folder;
  write_store(folder / "x", {{'h' + 2, '\n' + 2, 'i' + 2, 1}, {'o' + 2, 1}, {'n' + 2, 1}}, 258);
  const ByteTokenizer tokenizer;
  StoreReportOptions options;
  options.tokenizer = &tokenizer;
  const std::string report = store_report(TokenStore(folder / "x"), options);
  EXPECT_THAT(report, HasSubstr("min 2, median 2, max 4"));
  EXPECT_THAT(report, HasSubstr("document 0 (4 tokens)\n  ids:  106 12 107 1\n  text: \"h\\ni</s>\""));
  EXPECT_THAT(report, HasSubstr("document 1 (2 tokens)"));
  EXPECT_THAT(report, Not(HasSubstr("document 2"))) << "two documents by default";
}

TEST(StoreReport, CutsLongDocuments) {
  const TemporaryFolder folder;
  write_store(folder / "x", {{2, 3, 4, 5, 6}});
  StoreReportOptions options;
  options.tokens_per_document = 3;
  EXPECT_THAT(store_report(TokenStore(folder / "x"), options), HasSubstr("ids:  2 3 4 ...\n"));
}

TEST(StoreReport, RefusesAnotherTokenizer) {
  const TemporaryFolder folder;
  write_store(folder / "x", {{2, 3}}, 258, std::string(64, 'b'));
  const ByteTokenizer tokenizer;
  StoreReportOptions options;
  options.tokenizer = &tokenizer;
  EXPECT_THAT(error_of([&] { store_report(TokenStore(folder / "x"), options); }),
              HasSubstr("another tokenizer"));
}

}  // namespace
}  // namespace smoe
