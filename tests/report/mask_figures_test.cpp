#include "smoe/report/mask_figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mask_figures_support.h"
#include "smoe/core/error.h"
#include "temporary_folder.h"

namespace smoe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using testing::TemporaryFolder;

TEST(MaskFigures, ReadsAFolderOrAFile) {
  const TemporaryFolder folder;
  const auto file = folder.write("my masks/masks.json", testing::masks_json());
  for (const auto& path : {file, folder / "my masks"}) {
    const MaskFigures figures = read_mask_figures(path);
    EXPECT_EQ(figures.name, "my masks");
    EXPECT_EQ(figures.segment_length, 16);
    ASSERT_EQ(figures.budgets.size(), 2U);
    EXPECT_EQ(figures.budgets[0].p_value, 0.01);
    EXPECT_FALSE(figures.budgets[1].p_value);
    ASSERT_EQ(figures.budgets[0].texts.size(), 1U);  // not the one with a single topic
    EXPECT_EQ(figures.budgets[0].texts[0].cosine[0][1], 0.25);
    EXPECT_EQ(figures.budgets[1].topic_loads[1].second[0][1], 0.75);
  }
}

TEST(MaskFigures, LeavesOutLengthsAtWhichNoTextHasASecondSegment) {
  const TemporaryFolder folder;
  std::string json = testing::masks_json();
  json.replace(json.find("\"hit_rate\":0.375"), 16, "\"hit_rate\":null");
  const MaskFigures figures = read_mask_figures(folder.write("masks.json", json));
  EXPECT_THAT(figures.budgets[0].hit_rates, ElementsAre(Pair(8.0, 0.5)));
  EXPECT_THAT(figures.budgets[1].hit_rates, ElementsAre(Pair(8.0, 0.5), Pair(16.0, 0.375)));
}

void expect_error(const std::string& json, const std::vector<std::string>& parts) {
  const TemporaryFolder folder;
  try {
    read_mask_figures(folder.write("masks.json", json));
    FAIL() << "no error";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("masks.json: "));
    for (const std::string& part : parts) EXPECT_THAT(error.what(), HasSubstr(part));
  }
}

TEST(MaskFigures, SaysWhatIsWrongWithAFile) {
  expect_error("{}", {"not a masks.json of smoe-inspect masks", "segment_length"});
  expect_error("[1", {"not a masks.json"});
  expect_error(R"({"segment_length":1,"nesting":[],"budgets":[]})", {"`budgets` is empty"});
  std::string json = testing::masks_json();
  json.replace(json.find("[[1,0.25],[0.25,1]]"), 19, "[[1,0.25]]");
  expect_error(json, {"`cosine` of `case` has 1 rows, expected 2"});
  json = testing::masks_json();
  json.replace(json.find("[[0.5,0.75]]"), 12, "[[0.5]]");
  expect_error(json, {"`topic_load` of `b` has a row of 1 numbers, expected 2"});
  json = testing::masks_json();
  json.replace(json.rfind("\"case\""), 6, "\"other\"");
  expect_error(json, {"budget `L` has other texts with several topics than `S`"});
}

}  // namespace
}  // namespace smoe
