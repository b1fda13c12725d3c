// Reading of single values: every type, and every way to get one wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "core/config_test_support.h"

namespace smoe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ConfigValues, AnEmptyDocumentGivesTheDefaults) {
  for (const std::string yaml : {"", "# nothing\n", "{}", "---\n"}) {
    EXPECT_EQ(dump_config(machine_from(yaml)), dump_config(MachineConfig{})) << yaml;
  }
}

TEST(ConfigValues, EveryTypeIsRead) {
  const MachineConfig config = machine_from(R"(
fast: true
count: -0
ratio: 0.25
title: 42
metal: copper
owner: Ada
coating: iron
levels: [0, 1e-3]
tags: []
parts:
  - {name: wheel, weight: 2, sizes: [1, 2]}
  - name: axle
engine: {cylinders: 2, limit: 50}
)");
  EXPECT_TRUE(config.fast);
  EXPECT_EQ(config.count, 0);
  EXPECT_EQ(config.ratio, 0.25);
  EXPECT_EQ(config.title, "42");
  EXPECT_EQ(config.metal, Metal::kCopper);
  EXPECT_EQ(config.owner, "Ada");
  EXPECT_EQ(config.coating, Metal::kIron);
  EXPECT_THAT(config.levels.value(), ElementsAre(0.0, 0.001));
  EXPECT_TRUE(config.tags.empty());
  ASSERT_EQ(config.parts.size(), 2u);
  EXPECT_THAT(config.parts[0].sizes, ElementsAre(1, 2));
  EXPECT_EQ(config.parts[1].name, "axle");
  EXPECT_EQ(config.parts[1].weight, 1.5);
  EXPECT_EQ(config.engine.limit, 50.0);
}

TEST(ConfigValues, NullAndAutoUnsetAnOptional) {
  for (const std::string word : {"auto", "null", "~", ""}) {
    const MachineConfig config = machine_from("owner: " + word + "\nlevels: " + word);
    EXPECT_FALSE(config.owner.has_value()) << word;
    EXPECT_FALSE(config.levels.has_value()) << word;
  }
  EXPECT_EQ(machine_from("owner: \"auto\"").owner, "auto");
}

TEST(ConfigValues, IntegersMayBeWrittenWithAnExponent) {
  EXPECT_EQ(machine_from("count: 4e6").count, 4000000);
  EXPECT_EQ(machine_from("count: 1.5E3").count, 1500);
  EXPECT_EQ(machine_from("count: +7").count, 7);
  EXPECT_EQ(machine_from("count: 9223372036854775807").count, std::numeric_limits<int64_t>::max());
}

TEST(ConfigValues, WhatIsNoIntegerIsRefused) {
  for (const std::string text : {"4.0", "1_000", "1.5e0", "0x10", "many", "\"4\"", "true", "[4]", "{a: 4}",
                                 "1e300", "++4", "+-4", ".inf"}) {
    EXPECT_THAT(error_of("count: " + text), HasSubstr("m.yaml:1:8: count: expected an integer, found "))
        << text;
  }
  EXPECT_THAT(error_of("count: 9223372036854775808"),
              HasSubstr("expected an integer of at most 64 bits, found `9223372036854775808`"));
  EXPECT_THAT(error_of("count: \"4\""), HasSubstr("found the quoted text \"4\"; remove the quotes"));
  EXPECT_THAT(error_of("count:"), HasSubstr("count: expected an integer, found nothing (null)"));
}

TEST(ConfigValues, OnlyTrueAndFalseAreTruthValues) {
  for (const std::string text : {"yes", "True", "1", "on", "\"true\""}) {
    EXPECT_THAT(error_of("fast: " + text), HasSubstr("m.yaml:1:7: fast: expected true or false, found "))
        << text;
  }
}

TEST(ConfigValues, WhatIsNoNumberIsRefused) {
  for (const std::string text : {"nan", ".nan", "inf", "half", "0.5x", "1/2", "'0.5'", "[]"}) {
    EXPECT_THAT(error_of("ratio: " + text), HasSubstr("ratio: expected a number, found ")) << text;
  }
}

TEST(ConfigValues, RangesNameTheirLimits) {
  EXPECT_EQ(error_of("count: -1"), "m.yaml:1:8: count: -1 is out of range; allowed: at least 0");
  EXPECT_EQ(error_of("ratio: 1.01"), "m.yaml:1:8: ratio: 1.01 is out of range; allowed: from 0 to 1");
  EXPECT_EQ(error_of("parts: [{weight: 0}]"),
            "m.yaml:1:18: parts.0.weight: 0 is out of range; allowed: above 0");
  EXPECT_EQ(error_of("levels: [1, -2]"), "m.yaml:1:13: levels.1: -2 is out of range; allowed: at least 0");
  EXPECT_EQ(error_of("engine: {limit: 201}"),
            "m.yaml:1:17: engine.limit: 201 is out of range; allowed: from 0 to 200");
  EXPECT_EQ(error_of("ratio: 1\ncount: 0"), "");
}

TEST(ConfigValues, InfinityIsOutOfEveryRange) {
  EXPECT_EQ(error_of("ratio: .inf"), "m.yaml:1:8: ratio: .inf is out of range; allowed: finite numbers");
  // Only a lower limit, so that infinity is inside.
  EXPECT_EQ(error_of("levels: [1, +.inf]"),
            "m.yaml:1:13: levels.1: +.inf is out of range; allowed: finite numbers");
  EXPECT_EQ(error_of("parts: [{weight: -.inf}]"),
            "m.yaml:1:18: parts.0.weight: -.inf is out of range; allowed: finite numbers");
}

TEST(ConfigValues, AWrongEnumNameListsTheRightOnes) {
  EXPECT_EQ(error_of("metal: coper"),
            "m.yaml:1:8: metal: found `coper`; did you mean `copper`? allowed: iron, copper");
  EXPECT_EQ(error_of("metal: gold"), "m.yaml:1:8: metal: found `gold`; allowed: iron, copper");
  EXPECT_THAT(error_of("metal: [iron]"), HasSubstr("metal: found a list; allowed: iron, copper"));
}

TEST(ConfigValues, ContainersOfTheWrongKindAreRefused) {
  EXPECT_THAT(error_of("tags: red"), HasSubstr("m.yaml:1:7: tags: expected a list, found `red`"));
  EXPECT_THAT(error_of("title: [a]"), HasSubstr("title: expected text (\"\" for empty text), found a list"));
  EXPECT_THAT(error_of("title: null"),
              HasSubstr("title: expected text (\"\" for empty text), found nothing"));
  EXPECT_THAT(error_of("engine: 4"),
              HasSubstr("engine: expected a mapping with the keys cylinders, spark_plugs, limit, found `4`"));
  EXPECT_THAT(error_of("parts: [wheel]"),
              HasSubstr("parts.0: expected a mapping with the keys name, weight, sizes, found `wheel`"));
}

TEST(EnumNames, NamesAndValuesBelongTogether) {
  EXPECT_EQ(enum_to_name(Metal::kCopper), "copper");
  EXPECT_EQ(enum_from_name<Metal>("iron"), Metal::kIron);
  EXPECT_FALSE(enum_from_name<Metal>("gold").has_value());
}

}  // namespace
}  // namespace smoe
