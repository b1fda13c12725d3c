// Files, includes, sections and overrides.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/config_test_support.h"

namespace smoe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ConfigFiles, AMissingFileIsNamed) {
  EXPECT_THAT(error_of(ConfigSource{"/no/such/run.yaml", {}}),
              HasSubstr("/no/such/run.yaml: cannot open the file"));
}

TEST(ConfigFiles, IncludedKeysComeFirstAndMappingsMerge) {
  const testing::TemporaryFolder folder;
  folder.write("base/engine.yaml", "engine: {cylinders: 2, limit: 90}\ncount: 5\ntags: [a, b, c]\n");
  folder.write("base/more.yaml", "include: engine.yaml\ncount: 6\nfast: true\n");
  const auto path = folder.write("run.yaml", "include: base/more.yaml\nengine: {limit: 10}\ntags: [d]\n");
  const auto config = read_config<MachineConfig>({path, {}});
  EXPECT_EQ(config.engine.cylinders, 2);
  EXPECT_EQ(config.engine.limit, 10.0);
  EXPECT_EQ(config.count, 6);
  EXPECT_TRUE(config.fast);
  EXPECT_THAT(config.tags, ElementsAre("d"));
}

TEST(ConfigFiles, LaterIncludesWin) {
  const testing::TemporaryFolder folder;
  folder.write("a.yaml", "count: 1\nratio: 0.5\n");
  folder.write("b.yaml", "count: 2\n");
  const auto path = folder.write("run.yaml", "include: [a.yaml, b.yaml]\n");
  const auto config = read_config<MachineConfig>({path, {}});
  EXPECT_EQ(config.count, 2);
  EXPECT_EQ(config.ratio, 0.5);
}

TEST(ConfigFiles, ProblemsNameTheFileTheyAreIn) {
  const testing::TemporaryFolder folder;
  const auto base = folder.write("base.yaml", "ratio: 0.5\ncount: -1\n");
  const auto path = folder.write("run.yaml", "include: base.yaml\n\nengine: {cylinders: 3}\n");
  EXPECT_EQ(error_of(ConfigSource{path, {}}),
            "2 problems in " + path.string() + ":\n" + base.string() +
                ":2:8: count: -1 is out of range; allowed: at least 0\n" + path.string() +
                ":3:10: engine.spark_plugs and engine.cylinders: every cylinder needs as many plugs");
}

TEST(ConfigFiles, AMissingIncludeNamesThePlaceThatAsksForIt) {
  const testing::TemporaryFolder folder;
  const auto path = folder.write("run.yaml", "count: 1\ninclude: [gone.yaml]\n");
  const std::string error = error_of(ConfigSource{path, {}});
  EXPECT_THAT(error, HasSubstr(path.string() + ":2:11: include: "));
  EXPECT_THAT(error, HasSubstr((folder.path() / "gone.yaml").string() + ": cannot open the file"));
}

TEST(ConfigFiles, IncludeCyclesAreRefused) {
  const testing::TemporaryFolder folder;
  const auto path = folder.write("a.yaml", "include: b.yaml\n");
  const auto other = folder.write("b.yaml", "include: ./a.yaml\n");
  const std::string error = error_of(ConfigSource{path, {}});
  EXPECT_THAT(error, HasSubstr(other.string() + ":1:10: include: "));
  EXPECT_THAT(error, HasSubstr("includes itself"));
}

TEST(ConfigFiles, TheSameFileMayBeIncludedTwiceOnDifferentWays) {
  const testing::TemporaryFolder folder;
  folder.write("base.yaml", "count: 9\n");
  folder.write("a.yaml", "include: base.yaml\n");
  folder.write("b.yaml", "include: base.yaml\n");
  const auto path = folder.write("run.yaml", "include: [a.yaml, b.yaml]\n");
  EXPECT_EQ(read_config<MachineConfig>({path, {}}).count, 9);
}

TEST(ConfigFiles, AnIncludeIsAFileName) {
  const testing::TemporaryFolder folder;
  const auto path = folder.write("run.yaml", "include: {a: b}\n");
  EXPECT_THAT(error_of(ConfigSource{path, {}}),
              HasSubstr(":1:10: include: expected a file name or a list of file names, found a mapping"));
}

TEST(ConfigFiles, ASectionIsReadWithoutTheOthers) {
  const testing::TemporaryFolder folder;
  const auto path = folder.write("config.yaml", "whatever: {x: 1}\nengine: {cylinders: 6, spark_plugs: 6}\n");
  EXPECT_EQ(read_section<EngineConfig>(path, "engine").cylinders, 6);
  EXPECT_EQ(config_error([&] { read_section<EngineConfig>(path, "motor"); }),
            path.string() + ":1:1: motor: the section is missing; found: whatever, engine");
  const auto wrong = folder.write("wrong.yaml", "engine: {cylinders: 6, spark_plugs: 7}\n");
  EXPECT_THAT(config_error([&] { read_section<EngineConfig>(wrong, "engine"); }),
              HasSubstr(":1:24: engine.spark_plugs and engine.cylinders"));
}

TEST(ConfigOverrides, TheyWinOverFilesInTheirOrder) {
  const testing::TemporaryFolder folder;
  const auto path = folder.write("run.yaml", "count: 1\nengine: {limit: 3}\nparts: [{name: a}, {name: b}]\n");
  const auto config =
      read_config<MachineConfig>({path,
                                  {"count=2", "count=3", "engine.limit=auto", "parts.1.name=c", "tags=[x, y]",
                                   "engine={cylinders: 8}", "title=\"\"", "owner=a=b"}});
  EXPECT_EQ(config.count, 3);
  EXPECT_FALSE(config.engine.limit.has_value());
  EXPECT_EQ(config.engine.cylinders, 8);
  EXPECT_EQ(config.parts[0].name, "a");
  EXPECT_EQ(config.parts[1].name, "c");
  EXPECT_THAT(config.tags, ElementsAre("x", "y"));
  EXPECT_EQ(config.title, "");
  EXPECT_EQ(config.owner, "a=b");
}

TEST(ConfigOverrides, WorkWithoutAFile) {
  EXPECT_EQ(read_config<MachineConfig>({"", {"engine.cylinders=2"}}).engine.cylinders, 2);
}

TEST(ConfigOverrides, ProblemsNameTheOverride) {
  EXPECT_THAT(error_of(ConfigSource{"", {"engine.cylindres=2"}}),
              HasSubstr("--set engine.cylindres: engine.cylindres: unknown key; did you mean `cylinders`?"));
  EXPECT_EQ(error_of(ConfigSource{"", {"count=-1"}}),
            "--set count: count: -1 is out of range; allowed: at least 0");
  EXPECT_THAT(error_of(ConfigSource{"", {"tags=[a"}}), HasSubstr("--set tags: YAML syntax: "));
  EXPECT_THAT(error_of(ConfigSource{"", {"count"}}), HasSubstr("--set count: expected KEY=VALUE"));
  EXPECT_THAT(error_of(ConfigSource{"", {"a..b=1"}}), HasSubstr("--set a..b=1: expected KEY=VALUE"));
  EXPECT_THAT(error_of(ConfigSource{"", {"include=x.yaml"}}), HasSubstr("files are included by a file"));
  EXPECT_THAT(error_of(ConfigSource{"", {"count.x=1"}}),
              HasSubstr("count: expected an integer, found a mapping"));
}

TEST(ConfigOverrides, ListPositionsMustExist) {
  const testing::TemporaryFolder folder;
  const auto path = folder.write("run.yaml", "parts: [{name: a}]\n");
  EXPECT_EQ(
      error_of(ConfigSource{path, {"parts.1.name=b"}}),
      "--set parts.1.name: parts.1: `1` is no position in this list; it has 1 elements, counted from 0");
  EXPECT_THAT(error_of(ConfigSource{"", {"parts.0.name=b"}}),
              HasSubstr("parts: expected a list (an override reaches only into a list that a file sets)"));
}

TEST(ConfigOverrides, ARuleBrokenByAnOverrideNamesItAndTheFile) {
  const testing::TemporaryFolder folder;
  const auto path = folder.write("run.yaml", "engine:\n  spark_plugs: 8\n");
  EXPECT_EQ(error_of(ConfigSource{path, {"engine.cylinders=3"}}),
            path.string() +
                ":2:3: engine.spark_plugs and engine.cylinders: every cylinder needs as many plugs "
                "(engine.cylinders is set at --set engine.cylinders)");
}

}  // namespace
}  // namespace smoe
