#include "smoe/report/chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace smoe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(RoundTicks, AreMultiplesOfOneTwoOrFive) {
  EXPECT_THAT(round_ticks(0.0, 10.0, 5), ElementsAre(0.0, 2.0, 4.0, 6.0, 8.0, 10.0));
  EXPECT_THAT(round_ticks(5.43, 5.61, 4),
              ElementsAre(::testing::DoubleNear(5.45, 1e-12), ::testing::DoubleNear(5.5, 1e-12),
                          ::testing::DoubleNear(5.55, 1e-12), ::testing::DoubleNear(5.6, 1e-12)));
  EXPECT_THAT(round_ticks(-1.0, 1.0, 2), ElementsAre(-1.0, 0.0, 1.0));
}

TEST(LineChart, PutsTheExtremesAtTheEdges) {
  const std::string svg =
      line_chart({{"a", {{0.0, 1.0}, {10.0, 3.0}}}}, {"title", "x", "y", false, 720, 380});
  // Left 96, right 12, top 12, bottom 46 of 720 x 380.
  EXPECT_THAT(svg, HasSubstr("d=\"M96.0 334.0L708.0 12.0\""));
}

TEST(LineChart, BreaksTheLineAtNaN) {
  const std::string svg = line_chart({{"a", {{0.0, 1.0}, {1.0, std::nan("")}, {2.0, 2.0}, {3.0, 1.0}}}},
                                     {"t", "x", "y", false, 720, 380});
  EXPECT_THAT(svg, HasSubstr("d=\"M96.0 334.0M504.0 12.0L708.0 334.0\""));
}

TEST(LineChart, DrawsAFlatLineInTheMiddle) {
  const std::string svg = line_chart({{"a", {{0.0, 2.0}, {1.0, 2.0}}}}, {"t", "x", "y", false, 720, 380});
  EXPECT_THAT(svg, HasSubstr("d=\"M96.0 173.0L708.0 173.0\""));
}

TEST(LineChart, SaysThatThereIsNothing) {
  EXPECT_THAT(line_chart({{"a", {}}}, {"t", "x", "y", false, 720, 380}), HasSubstr("nothing yet"));
}

TEST(LineChart, EscapesLabels) {
  const std::string svg =
      line_chart({{"<b> & \"c\"", {{0.0, 1.0}}, 0, 0, true}}, {"1 < 2", "x", "y", false, 720, 380});
  EXPECT_THAT(svg, HasSubstr("&lt;b&gt; &amp; &quot;c&quot;"));
  EXPECT_THAT(svg, Not(HasSubstr("<b>")));
  EXPECT_THAT(svg, HasSubstr("1 &lt; 2"));
}

}  // namespace
}  // namespace smoe
