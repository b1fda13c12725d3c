// Every model that configs/ ships is valid.
#include <gtest/gtest.h>

#include <filesystem>
#include <vector>

#include "smoe/model/model_config.h"
#include "smoe/model/parameter_counts.h"

namespace smoe {
namespace {

// Files of configs/ that describe a model; the other folders may hold configs of other things.
std::vector<std::filesystem::path> model_files() {
  const std::filesystem::path configs = std::filesystem::path(SMOE_SOURCE_DIR) / "configs";
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(configs)) {
    if (entry.path().extension() != ".yaml") {
      continue;
    }
    ConfigProblems problems;
    const ConfigNode root = load_config_tree({entry.path(), {}}, problems);
    EXPECT_TRUE(problems.empty()) << problems.text();
    if (root.find("model") != nullptr) {
      files.push_back(entry.path());
    }
  }
  return files;
}

TEST(ConfigFiles, EveryModelIsValidAndCountable) {
  const std::vector<std::filesystem::path> files = model_files();
  EXPECT_GE(files.size(), 14U);
  for (const std::filesystem::path& file : files) {
    SCOPED_TRACE(file.string());
    ModelConfig config;
    ASSERT_NO_THROW(config = read_model_config({file, {}}));
    EXPECT_GT(count_parameters(config, 128).total, 0);
  }
}

}  // namespace
}  // namespace smoe
