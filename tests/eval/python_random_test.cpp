// Against CPython: tests/golden/eval/make_sampler_golden.py wrote the expected draws.
#include "smoe/eval/python_random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "eval/eval_test_support.h"
#include "smoe/core/json.h"

namespace smoe {
namespace {

TEST(PythonRandom, FirstWordOfSeed1234IsCPythons) { EXPECT_EQ(PythonRandom(1234).next_word(), 4150886329u); }

TEST(PythonRandom, FirstDrawOfTheGsm8kPoolIsTheKnownOne) {
  EXPECT_THAT(PythonRandom(1234).sample(7473, 5), ::testing::ElementsAre(6374, 3610, 957, 61, 742));
}

TEST(PythonRandom, SuccessiveDrawsEqualCPythonsForAllPoolsAndSeeds) {
  const auto golden = read_json_file(source_folder() / "tests/golden/eval/sampler.json");
  ASSERT_GE(golden["cases"].size(), 18u);
  for (const auto& example : golden["cases"]) {
    PythonRandom random(example["seed"].get<uint64_t>());
    for (const auto& draw : example["draws"]) {
      EXPECT_EQ(random.sample(example["pool"], example["count"]), draw.get<std::vector<int64_t>>())
          << "seed " << example["seed"] << ", pool " << example["pool"] << ", count " << example["count"];
    }
  }
}

TEST(PythonRandom, DrawingMoreThanThePoolIsAnInternalError) {
  EXPECT_THROW(PythonRandom(1).sample(3, 4), std::logic_error);
}

}  // namespace
}  // namespace smoe
