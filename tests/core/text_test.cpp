// Text for people: tables, progress lines, durations, sizes, near misses of words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

#include "smoe/core/file_name.h"
#include "smoe/core/progress.h"
#include "smoe/core/table.h"
#include "smoe/core/text_distance.h"

namespace smoe {
namespace {

TEST(DisplayWidth, CountsColumnsNotBytes) {
  EXPECT_EQ(display_width(""), 0u);
  EXPECT_EQ(display_width("abc"), 3u);
  EXPECT_EQ(display_width("é±—"), 3u);
  EXPECT_EQ(display_width("e\u0301"), 1u);
  EXPECT_EQ(display_width("漢字"), 4u);
  EXPECT_EQ(display_width("한글"), 4u);
  EXPECT_EQ(display_width("😀"), 2u);
  EXPECT_EQ(display_width("━─"), 2u);
  EXPECT_EQ(display_width("\xff\xc3"), 2u) << "broken UTF-8";
}

TEST(Table, AlignsCellsOfAnyWidth) {
  Table table({"task", "1B"});
  table.add_row({"漢字", "0.5 ± 0.1"});
  table.add_separator();
  table.add_row({"mean"});
  EXPECT_EQ(table.to_terminal(),
            "┌──────┬───────────┐\n"
            "│ task │        1B │\n"
            "├──────┼───────────┤\n"
            "│ 漢字 │ 0.5 ± 0.1 │\n"
            "├──────┼───────────┤\n"
            "│ mean │           │\n"
            "└──────┴───────────┘\n");
}

TEST(Table, MarkdownEscapesBarsAndDropsSeparators) {
  Table table({"name", "k"});
  table.add_row({"a|b", "4\n5"});
  table.add_separator();
  table.add_row({"c", "12"});
  EXPECT_EQ(table.to_markdown(),
            "| name |   k |\n"
            "| :--- | --: |\n"
            "| a\\|b | 4 5 |\n"
            "| c    |  12 |\n");
}

TEST(Table, ExtraCellsAreAnInternalError) {
  Table table({"a"});
  EXPECT_THROW(table.add_row({"1", "2"}), std::logic_error);
  EXPECT_THROW(Table({}), std::logic_error);
}

TEST(Formats, DurationsUseTheTwoLargestUnits) {
  EXPECT_EQ(format_duration(0.4), "0s");
  EXPECT_EQ(format_duration(12), "12s");
  EXPECT_EQ(format_duration(59.6), "1m 00s");
  EXPECT_EQ(format_duration(200), "3m 20s");
  EXPECT_EQ(format_duration(3720), "1h 02m");
  EXPECT_EQ(format_duration(183600), "2d 03h");
  EXPECT_EQ(format_duration(-1), "?");
  EXPECT_EQ(format_duration(1.0 / 0.0), "?");
}

TEST(Formats, BytesHaveThreeDigitsAndABinaryUnit) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1024), "1 KiB");
  EXPECT_EQ(format_bytes(1.23 * 1024 * 1024 * 1024), "1.23 GiB");
  EXPECT_EQ(format_bytes(1048575), "1.00 MiB") << "not 1024 KiB";
  EXPECT_EQ(format_bytes(1e30), "888178419700125 PiB");
}

TEST(Formats, CountsHaveThreeDigitsAndALetter) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(456), "456");
  EXPECT_EQ(format_count(12.345), "12.3");
  EXPECT_EQ(format_count(0.5), "0.50");
  EXPECT_EQ(format_count(1.23e6), "1.23M");
  EXPECT_EQ(format_count(11.9e9), "11.9B");
  EXPECT_EQ(format_count(999.6), "1.00K");
  EXPECT_EQ(format_count(999999), "1.00M");
  EXPECT_EQ(format_count(9999), "10.0K");
  EXPECT_EQ(format_count(-1500), "-1.50K");
}

TEST(ProgressLine, ShowsShareCountsRateAndTimeLeft) {
  EXPECT_EQ(progress_line({"Tokenizing", "documents", 250, 1000, 5.0}, 100),
            "Tokenizing  ━━━━━━━───────────────────────   25%  250/1K documents  50/s  15s left");
  EXPECT_EQ(progress_line({"Reading", "bytes", 1536, 0, 1.0}, 100), "Reading  1.50 KiB  1.50 KiB/s");
  EXPECT_EQ(progress_line({"Reading", "rows", 0, 10, 0.0}, 40), "Reading  ──────────────    0%  0/10 rows")
      << "the bar shrinks";
}

TEST(ProgressLine, NeverExceedsTheWidth) {
  const ProgressState state{"Evaluating hellaswag", "items", 1234, 10042, 61.0};
  for (size_t width = 30; width < 120; ++width) {
    EXPECT_LE(display_width(progress_line(state, width)), width) << width;
  }
  EXPECT_EQ(progress_line({"x", "rows", 10, 10, 1.0}, 60).find("left"), std::string::npos)
      << "nothing is left";
}

TEST(ProgressBar, TakesAdvancesFromSeveralThreads) {
  ProgressBar bar("Counting", 2000, "steps");
  std::thread other([&] {
    for (int i = 0; i < 1000; ++i) bar.advance();
  });
  for (int i = 0; i < 1000; ++i) bar.advance();
  other.join();
}

TEST(FileName, HasNoCharacterThatPathsGiveAMeaning) {
  EXPECT_EQ(file_name_of("my text/1:2\\3"), "my_text_1_2_3");
  EXPECT_EQ(file_name_of("1B-\xC3\xA9"), "1B-\xC3\xA9");
}

TEST(DidYouMean, FindsSlipsButNoOtherWords) {
  using detail::did_you_mean;
  EXPECT_EQ(detail::edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(detail::edit_distance("dmi", "dim"), 1u) << "a swap is one edit";
  EXPECT_EQ(detail::edit_distance("", "abc"), 3u);
  EXPECT_EQ(did_you_mean("dmi", {"dim", "head_dim"}), " did you mean `dim`?");
  EXPECT_EQ(did_you_mean("learning_rat", {"warmup", "learning_rate"}), " did you mean `learning_rate`?");
  EXPECT_EQ(did_you_mean("depth", {"dim", "width"}), "");
  EXPECT_EQ(did_you_mean("x", {}), "");
}

}  // namespace
}  // namespace smoe
