// Writing configs: exact round trips, and the description of all keys.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "core/config_test_support.h"
#include "smoe/core/random.h"

namespace smoe {
namespace {

using ::testing::HasSubstr;

MachineConfig round_trip(const MachineConfig& config) { return machine_from(dump_config(config)); }

TEST(ConfigDump, WritesEveryKeyInOrder) {
  MachineConfig config;
  config.levels = {0.5, 2.0};
  config.parts = {{"wheel", 1e-5, {1, 2}}, {"", 3.0, {}}};
  EXPECT_EQ(dump_config(config), R"(fast: false
count: 3
ratio: 0.1
title: "a machine"
metal: iron
owner: auto
coating: auto
levels: [0.5, 2.0]
tags: [red, "true"]
parts:
  - name: wheel
    weight: 1.0e-05
    sizes: [1, 2]
  - name: ""
    weight: 3.0
    sizes: []
engine:
  cylinders: 4
  spark_plugs: 8
  limit: auto
)");
  EXPECT_EQ(dump_config(round_trip(config)), dump_config(config));
}

TEST(ConfigDump, DoublesReadBackBitForBit) {
  SplitMix64 random(7);
  MachineConfig config;
  config.levels = {0.0,
                   0.1,
                   1.0 / 3.0,
                   5e-324,
                   std::numeric_limits<double>::max(),
                   1e22,
                   std::numeric_limits<double>::denorm_min()};
  for (int i = 0; i < 1000; ++i) {
    const double value = std::abs(std::bit_cast<double>(random.next()));
    if (std::isfinite(value)) config.levels->push_back(value);
  }
  const MachineConfig copy = round_trip(config);
  ASSERT_EQ(copy.levels->size(), config.levels->size());
  for (size_t i = 0; i < config.levels->size(); ++i) {
    EXPECT_EQ(std::bit_cast<uint64_t>((*copy.levels)[i]), std::bit_cast<uint64_t>((*config.levels)[i]));
  }
}

TEST(ConfigDump, AnyTextReadsBack) {
  for (const std::string text : {"",
                                 " ",
                                 "auto",
                                 "null",
                                 "~",
                                 "true",
                                 "No",
                                 "1e5",
                                 "0x1f",
                                 "-",
                                 "- a",
                                 "a: b",
                                 "a #b",
                                 "#b",
                                 "[x]",
                                 "{x}",
                                 "*a",
                                 "&a",
                                 "!tag",
                                 "%x",
                                 "@x",
                                 "`x`",
                                 "'x'",
                                 "\"x\"",
                                 "back\\slash",
                                 "two\nlines",
                                 "tab\there",
                                 "bell\a",
                                 "caf\xc3\xa9",
                                 " lead",
                                 "trail ",
                                 "a,b",
                                 "http://x/y?z=1&b",
                                 "/abs/path.bin",
                                 "../up",
                                 "C:\\x",
                                 ".5",
                                 "?",
                                 "a\rb",
                                 "\x7f"}) {
    MachineConfig config;
    config.title = text;
    config.owner = text;
    config.tags = {text, text};
    const MachineConfig copy = round_trip(config);
    EXPECT_EQ(copy.title, text);
    EXPECT_EQ(copy.owner, text);
    EXPECT_EQ(copy.tags, config.tags);
  }
}

TEST(ConfigDump, TheHashChangesWithAnyValue) {
  MachineConfig config;
  const std::string before = config_hash(config);
  EXPECT_EQ(before.size(), 64u);
  EXPECT_EQ(before, config_hash(MachineConfig{}));
  config.engine.limit = 1.0;
  EXPECT_NE(before, config_hash(config));
}

TEST(ConfigDescription, NamesTypeRangeAndMeaningOfEveryKey) {
  EXPECT_EQ(describe_config<MachineConfig>(), R"(fast: false  # true or false. whether it is fast
count: 3  # integer, at least 0. how many
ratio: 0.1  # number, from 0 to 1. a share
title: "a machine"  # text. what it is called
metal: iron  # one of iron | copper. what it is made of
owner: auto  # text or auto. who has it
coating: auto  # one of iron | copper or auto. what covers it
levels: auto  # list of numbers or auto, at least 0. oil levels
tags: [red, "true"]  # list of texts. words about it
parts: []  # list of mappings. what it consists of
  # - name: ""  # text. label of the part
  #   weight: 1.5  # number, above 0. in kg
  #   sizes: []  # list of integers, at least 1. in mm
engine:  # what drives it
  cylinders: 4  # integer, from 1 to 12. number of cylinders
  spark_plugs: 8  # integer, at least 0. number of spark plugs
  limit: auto  # number or auto, from 0 to 200. turns a second; auto: from the cylinders
)");
}

TEST(ConfigDescription, IsItselfAConfigWithTheDefaults) {
  EXPECT_EQ(dump_config(machine_from(describe_config<MachineConfig>())), dump_config(MachineConfig{}));
}

}  // namespace
}  // namespace smoe
