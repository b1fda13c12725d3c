// What goes wrong with a config as a whole: keys, syntax, rules between fields, many problems at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/config_test_support.h"

namespace smoe {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ConfigProblems, AnUnknownKeyNamesTheNearestAndAllAllowedOnes) {
  EXPECT_EQ(
      error_of("engine:\n  cylinder: 2\n"),
      "m.yaml:2:3: engine.cylinder: unknown key; did you mean `cylinders`? allowed: cylinders, spark_plugs, "
      "limit");
  EXPECT_EQ(error_of("engine: {zzz: 2}"),
            "m.yaml:1:10: engine.zzz: unknown key; allowed: cylinders, spark_plugs, limit");
  EXPECT_THAT(error_of("parts: [{nmae: x}]"),
              HasSubstr("m.yaml:1:10: parts.0.nmae: unknown key; did you mean `name`?"));
}

TEST(ConfigProblems, ADuplicateKeyNamesBothPlaces) {
  EXPECT_EQ(error_of("count: 1\nfast: true\ncount: 2\n"),
            "m.yaml:3:1: count: the key is set twice; it was set first at m.yaml:1:1");
  EXPECT_THAT(error_of("engine: {limit: 1, limit: 1}"), HasSubstr("engine.limit: the key is set twice"));
}

TEST(ConfigProblems, AllProblemsAreReportedInTheOrderOfTheFile) {
  EXPECT_EQ(error_of("engine:\n  cylinders: 0\ncuont: 1\nfast: maybe\n"),
            "3 problems in m.yaml:\n"
            "m.yaml:2:14: engine.cylinders: 0 is out of range; allowed: from 1 to 12\n"
            "m.yaml:3:1: cuont: unknown key; did you mean `count`? allowed: fast, count, ratio, title, "
            "metal, owner, "
            "coating, levels, tags, parts, engine\n"
            "m.yaml:4:7: fast: expected true or false, found `maybe`");
}

TEST(ConfigProblems, SyntaxErrorsHaveAPlace) {
  EXPECT_THAT(error_of("fast: true\nengine: {limit: 1\n"), HasSubstr("m.yaml:3:1: YAML syntax: "));
  EXPECT_THAT(error_of("a: b: c"), HasSubstr("m.yaml:1:5: YAML syntax: "));
  EXPECT_THAT(error_of("\tfast: true"), HasSubstr("m.yaml:1:"));
  EXPECT_THAT(error_of("title: *nobody"), HasSubstr("YAML syntax: "));
}

TEST(ConfigProblems, ACharacterThatBeginsNoValueEndsTheReading) {
  EXPECT_THAT(error_of(", fast: true"), HasSubstr("m.yaml:1:1: YAML syntax: no value begins with this"));
  EXPECT_THAT(error_of("\n  , ]"), HasSubstr("YAML syntax: "));
}

TEST(ConfigProblems, AliasesOfAliasesDoNotFillTheMemory) {
  std::string text = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n";
  for (int i = 1; i < 12; ++i) {
    text += fmt::format("a{}: &a{} [", i, i);
    for (int item = 0; item < 10; ++item) text += fmt::format("{}*a{}", item == 0 ? "" : ", ", i - 1);
    text += "]\n";
  }
  EXPECT_THAT(error_of(text), HasSubstr("more than 200000 values, aliases counted"));
}

TEST(ConfigProblems, ADocumentMustBeOneMapping) {
  EXPECT_THAT(error_of("- 1\n- 2\n"), HasSubstr("m.yaml:1:1: expected `key: value` lines, found a list"));
  EXPECT_THAT(error_of("hello"), HasSubstr("m.yaml:1:1: expected `key: value` lines, found `hello`"));
  EXPECT_THAT(error_of("count: 1\n---\ncount: 2\n"),
              HasSubstr("m.yaml:3:1: a second YAML document starts here"));
  EXPECT_THAT(error_of("? [a, b]\n: 1\n"), HasSubstr("a key must be a plain word"));
}

TEST(ConfigProblems, ASelfContainingAliasIsRefused) {
  EXPECT_THAT(error_of("tags: &a [*a]"), HasSubstr("nested deeper than"));
}

TEST(ConfigProblems, ARuleNamesBothKeysAndTheirPlaces) {
  EXPECT_EQ(error_of("engine:\n  cylinders: 3\n  spark_plugs: 7\n"),
            "m.yaml:3:3: engine.spark_plugs and engine.cylinders: every cylinder needs as many plugs "
            "(engine.cylinders is set at m.yaml:2:3)");
}

TEST(ConfigProblems, ARuleAboutADefaultPointsAtTheKeyThatWasWritten) {
  EXPECT_EQ(error_of("engine:\n  cylinders: 3\n"),
            "m.yaml:2:3: engine.spark_plugs and engine.cylinders: every cylinder needs as many plugs");
}

TEST(ConfigProblems, RulesReachStructsInLists) {
  EXPECT_EQ(error_of("parts:\n- weight: 1\n- weight: 1001\n"),
            "m.yaml:3:3: parts.1.weight: no part is heavier than 1000 kg");
}

TEST(ConfigProblems, RulesAreNotCheckedOnAStructThatCouldNotBeRead) {
  const std::string error = error_of("engine: {cylinders: x, spark_plugs: 7}\nparts: [{weight: 2000}]\n");
  EXPECT_THAT(error, HasSubstr("engine.cylinders: expected an integer"));
  EXPECT_THAT(error, Not(HasSubstr("as many plugs")));
  EXPECT_THAT(error, HasSubstr("parts.0.weight: no part is heavier"));
}

TEST(ConfigProblems, ValidateCanBeCalledOnAStructThatWasNotRead) {
  ConfigProblems problems;
  validate(EngineConfig{.cylinders = 3, .spark_plugs = 7, .limit = {}}, problems);
  EXPECT_EQ(problems.text(), "spark_plugs and cylinders: every cylinder needs as many plugs");
  EXPECT_THROW(problems.throw_if_any("engine"), ConfigError);
}

TEST(ConfigProblems, ConfigErrorsHaveTheirOwnExitCode) {
  try {
    machine_from("count: x");
    FAIL() << "the config was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), 2);
  }
}

}  // namespace
}  // namespace smoe
