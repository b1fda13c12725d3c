#include "smoe/report/heatmap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace smoe {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

HeatmapOptions options(double low, double high) {
  HeatmapOptions result;
  result.title = "title";
  result.low = low;
  result.high = high;
  return result;
}

TEST(Heatmap, DrawsNeighboursOfOneShadeTogether) {
  const std::string svg = heatmap({{1.0, 1.0, 0.5}, {0.0, 0.5, 1.0}}, options(0.0, 1.0));
  EXPECT_THAT(svg, HasSubstr("fill-opacity=\"1.00\" d=\"M0 0h2v1h-2zM2 1h1v1h-1z\""));
  EXPECT_THAT(svg, HasSubstr("fill-opacity=\"0.50\" d=\"M2 0h1v1h-1zM1 1h1v1h-1z\""));
  EXPECT_THAT(svg, Not(HasSubstr("M0 1")));  // the lowest value is the page's own colour
}

TEST(Heatmap, DrawsValuesBeyondTheScaleLikeItsEnds) {
  const std::string svg = heatmap({{-5.0, 9.0}}, options(0.0, 1.0));
  EXPECT_THAT(svg, HasSubstr("fill-opacity=\"1.00\" d=\"M1 0h1v1h-1z\""));
  EXPECT_THAT(svg, Not(HasSubstr("M0 0")));
}

TEST(Heatmap, GivesNegativeValuesAnotherColour) {
  HeatmapOptions diverging = options(0.0, 0.2);
  diverging.diverging = true;
  const std::string svg = heatmap({{-0.2, 0.0, 0.1}}, diverging);
  EXPECT_THAT(svg, HasSubstr("class=\"heat less\" fill-opacity=\"1.00\" d=\"M0 0h1v1h-1z\""));
  EXPECT_THAT(svg, HasSubstr("class=\"heat\" fill-opacity=\"0.50\" d=\"M2 0h1v1h-1z\""));
  EXPECT_THAT(svg, HasSubstr(" -0.200<svg"));
}

TEST(Heatmap, MarksRunsOfGroupsOnBothSidesOfASquare) {
  HeatmapOptions grouped = options(0.0, 1.0);
  grouped.square = true;
  grouped.width = 68 + 400;
  grouped.groups = {0, 0, 0, 1};
  grouped.group_names = {"a & b", "c"};
  const Matrix values(4, std::vector<double>(4, 1.0));
  const std::string svg = heatmap(values, grouped);
  EXPECT_THAT(svg, HasSubstr("<rect class=\"c0\" x=\"60.00\" y=\"6\" width=\"300.00\" height=\"6\"/>"));
  EXPECT_THAT(svg, HasSubstr("<rect class=\"c1\" x=\"52\" y=\"314.00\" width=\"6\" height=\"100.00\"/>"));
  EXPECT_THAT(svg, HasSubstr("a &amp; b"));
}

TEST(Heatmap, DrawsAMatrixOfEqualNumbers) {
  EXPECT_THAT(heatmap({{0.25, 0.25}}, options(0.25, 0.25)), Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace smoe
