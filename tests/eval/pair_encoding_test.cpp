#include "smoe/eval/pair_encoding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "eval/eval_test_support.h"
#include "smoe/core/error.h"

namespace smoe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Ids = std::vector<int32_t>;

Ids operator+(Ids left, const Ids& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

TEST(PairEncoder, BosStandsBeforeTheContextOnly) {
  const ByteTokenizer tokenizer;
  const Request request = PairEncoder(tokenizer, BosPolicy::kAuto, 100).encode({"xy", " z"}, "");
  EXPECT_EQ(request.context, Ids{1} + byte_ids("xy"));
  EXPECT_EQ(request.continuation, byte_ids(" z"));
  EXPECT_EQ(PairEncoder(tokenizer, BosPolicy::kNever, 100).encode({"xy", " z"}, "").context, byte_ids("xy"));
  EXPECT_EQ(PairEncoder(tokenizer, BosPolicy::kEos, 100).encode({"xy", " z"}, "").context,
            Ids{2} + byte_ids("xy"));
}

TEST(PairEncoder, TrailingSpacesOfTheContextMoveToTheContinuation) {
  const ByteTokenizer tokenizer;
  const Request request = PairEncoder(tokenizer, BosPolicy::kNever, 100).encode({"x ", "c"}, "");
  EXPECT_EQ(request.context, byte_ids("x"));
  EXPECT_EQ(request.continuation, Ids{301});  // " c" is one token
}

TEST(PairEncoder, ATokenAcrossTheBorderGoesWithTheWholeText) {
  const ByteTokenizer tokenizer;
  PairEncoder encoder(tokenizer, BosPolicy::kNever, 100);
  // "xab" + "cd": whole = x ab c d. Context "xa" has two ids, so the continuation is what follows the second:
  // c d.
  EXPECT_EQ(encoder.encode({"xa", "bcd"}, "").continuation, byte_ids("cd"));
  EXPECT_EQ(encoder.counts().empty_continuations, 0);
}

TEST(PairEncoder, AnEmptyContinuationIsEncodedByItselfAndCounted) {
  const ByteTokenizer tokenizer;
  PairEncoder encoder(tokenizer, BosPolicy::kAuto, 100);
  const Request request = encoder.encode({"xa", "b"}, "");
  EXPECT_EQ(request.continuation, byte_ids("b"));
  EXPECT_EQ(encoder.counts().empty_continuations, 1);
}

TEST(PairEncoder, AnEmptyContextIsThePrefixToken) {
  const ByteTokenizer tokenizer;
  EXPECT_EQ(PairEncoder(tokenizer, BosPolicy::kNever, 100).encode({"", " z"}, "").context, Ids{1});
  const ByteTokenizer without_bos(false, true);
  EXPECT_EQ(PairEncoder(without_bos, BosPolicy::kAuto, 100).encode({"", " z"}, "").context, Ids{2});
  const ByteTokenizer without_both(false, false);
  EXPECT_THAT(error_text<ConfigError>([&] {
                PairEncoder(without_both, BosPolicy::kAuto, 100).encode({"", "z"}, "");
              }),
              HasSubstr("neither BOS nor EOS"));
}

TEST(PairEncoder, AContextOfWhiteSpaceAloneLosesNoTokenOfTheContinuation) {
  const ByteTokenizer tokenizer;
  PairEncoder encoder(tokenizer, BosPolicy::kNever, 100);
  const Request request = encoder.encode({"  ", "xyz"}, "");
  EXPECT_EQ(request.context, Ids{1});
  EXPECT_EQ(request.continuation, byte_ids("  xyz"));
  EXPECT_EQ(encoder.counts().empty_continuations, 0);
}

TEST(PairEncoder, OverlongContextsLoseTheirLeftAndAreCounted) {
  const ByteTokenizer tokenizer;
  PairEncoder encoder(tokenizer, BosPolicy::kAuto, 4);
  // Inputs are context + continuation without its last id: four of them fit.
  const Request request = encoder.encode({"uvwxyz", "12"}, "");
  EXPECT_EQ(request.context, byte_ids("xyz"));
  EXPECT_EQ(encoder.encode({"xy", "12"}, "").context, Ids{1} + byte_ids("xy"));  // exactly fits
  EXPECT_EQ(encoder.counts().truncated, 1);
  EXPECT_EQ(encoder.encode({"xy", "1234"}, "").context, byte_ids("y"));
  EXPECT_THAT(error_text<DataError>([&] {
                encoder.encode({"x", "12345"}, "f:3");
              }),
              AllOf(HasSubstr("f:3"), HasSubstr("5 tokens"), HasSubstr("--max-length")));
}

TEST(PairEncoder, PoliciesThatNeedAMissingTokenAreRefused) {
  const ByteTokenizer bare(false, false);
  EXPECT_THROW(PairEncoder(bare, BosPolicy::kAlways, 10), ConfigError);
  EXPECT_THROW(PairEncoder(bare, BosPolicy::kEos, 10), ConfigError);
  EXPECT_THAT(error_text<ConfigError>([] { parse_bos_policy("yes"); }), HasSubstr("never"));
}

TEST(PairEncoder, RollingWindowsScoreEveryTokenOnceAndFillTheLastWithEarlierText) {
  const ByteTokenizer tokenizer;
  PairEncoder encoder(tokenizer, BosPolicy::kAuto, 4);
  const std::vector<Request> windows = encoder.encode_rolling("0123456789");
  ASSERT_EQ(windows.size(), 3u);
  EXPECT_EQ(windows[0].context, Ids{1});
  EXPECT_EQ(windows[0].continuation, byte_ids("0123"));
  EXPECT_EQ(windows[1].context, byte_ids("3"));
  EXPECT_EQ(windows[1].continuation, byte_ids("4567"));
  EXPECT_EQ(windows[2].context, byte_ids("567"));  // four inputs: 5 6 7 8 predict 8 and 9 last
  EXPECT_EQ(windows[2].continuation, byte_ids("89"));
  EXPECT_TRUE(encoder.encode_rolling("").empty());
}

}  // namespace
}  // namespace smoe
