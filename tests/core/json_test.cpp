#include "smoe/core/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/core/json_depth.h"
#include "temporary_folder.h"

namespace smoe {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string parse_error(std::string_view text) {
  try {
    parse_json(text, "x.json");
  } catch (const DataError& error) {
    return error.what();
  }
  return "no error";
}

TEST(ParseJson, ErrorsHaveLineColumnAndByte) {
  EXPECT_THAT(parse_error("{\n  \"a\": 1,\n  \"b\": x\n}"),
              StartsWith("x.json:3:8: not valid JSON (byte 20): "));
  EXPECT_THAT(parse_error("{\"a\": 1"), StartsWith("x.json:1:8: not valid JSON (byte 8): "));
  EXPECT_THAT(parse_error(""), StartsWith("x.json:1:1: not valid JSON (byte 1): "));
  EXPECT_THAT(parse_error("[1] 2"), StartsWith("x.json:1:5: not valid JSON (byte 5): "));
  EXPECT_THAT(parse_error("\"\xff\""), HasSubstr("not valid JSON"));
  EXPECT_THAT(parse_error("[1e999]"), HasSubstr("x.json: not usable JSON: number overflow"));
}

TEST(ParseJson, DeepNestingIsRefusedBeforeAnythingRecurses) {
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(parse_error(nested(kMaxJsonDepth)), "no error");
  EXPECT_THAT(parse_error(nested(kMaxJsonDepth + 1)),
              HasSubstr("x.json: the JSON nests more than 500 levels"));
  EXPECT_THAT(parse_error(nested(1'000'000)), HasSubstr("nests more than"));
}

TEST(JsonDepth, CountsBracketsOutsideOfStringsOnly) {
  EXPECT_FALSE(is_too_deep_json("[\"" + std::string(2 * kMaxJsonDepth, '[') + "\"]"));
  EXPECT_FALSE(is_too_deep_json("\"\\\"" + std::string(2 * kMaxJsonDepth, '{')));
  EXPECT_TRUE(is_too_deep_json("\"\\\\\"" + std::string(kMaxJsonDepth + 1, '{')));
  std::string siblings;
  for (size_t i = 0; i < 2 * kMaxJsonDepth; ++i) siblings += "[{}],";
  EXPECT_FALSE(is_too_deep_json(siblings));
}

TEST(JsonFiles, RoundTrip) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "x.json";
  const nlohmann::json value = {{"a", {1, 2.5, "é"}}, {"b", nullptr}};
  write_json_atomically(path, value);
  EXPECT_EQ(read_json_file(path), value);
  write_json_atomically(path, value, -1);
  EXPECT_EQ(read_file(path), "{\"a\":[1,2.5,\"é\"],\"b\":null}\n");
}

TEST(JsonFiles, ErrorsNameTheFile) {
  const testing::TemporaryFolder folder;
  EXPECT_THROW(read_json_file(folder.path() / "gone.json"), DataError);
  const auto path = folder.write("x.json", "old");
  try {
    write_json_atomically(path, "\xff");
    FAIL() << "invalid UTF-8 was written";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), StartsWith(path.string() + ": cannot be written as JSON: invalid UTF-8"));
  }
  EXPECT_EQ(read_file(path), "old");
}

TEST(JsonFiles, NumbersThatJsonLacksBecomeNull) {
  const testing::TemporaryFolder folder;
  write_json_atomically(folder.path() / "x.json", std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(read_file(folder.path() / "x.json"), "null\n");
}

}  // namespace
}  // namespace smoe
