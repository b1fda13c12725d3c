// Every training config that configs/ ships reads without a problem, and those of configs/paper hold the
// paper's training recipe.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "smoe/train/train_config.h"

namespace smoe {
namespace {

std::filesystem::path configs_folder() { return std::filesystem::path(SMOE_SOURCE_DIR) / "configs"; }

// Files below `folder` that hold a whole run: a model and its data.
std::vector<std::filesystem::path> run_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".yaml") continue;
    ConfigProblems problems;
    const ConfigNode root = load_config_tree({entry.path(), {}}, problems);
    if (root.find("model") != nullptr && root.find("data") != nullptr) files.push_back(entry.path());
  }
  return files;
}

TEST(RunConfigFiles, EveryRunReadsWithoutAProblem) {
  const std::vector<std::filesystem::path> files = run_files(configs_folder());
  EXPECT_GE(files.size(), 14U);
  for (const std::filesystem::path& file : files) {
    SCOPED_TRACE(file.string());
    TrainConfig config;
    ASSERT_NO_THROW(config = read_config<TrainConfig>({file, {}}));
    EXPECT_FALSE(config.run_folder.empty());
  }
}

TEST(RunConfigFiles, PaperRunsTrainOnATrillionTokens) {
  for (const std::filesystem::path& file : run_files(configs_folder() / "paper")) {
    SCOPED_TRACE(file.string());
    const TrainConfig config = read_config<TrainConfig>({file, {}});
    if (config.task == TrainTask::kSft) continue;
    EXPECT_EQ(config.data.sequence_length, 8192);
    EXPECT_EQ(config.batch_size, 2048);
    const double tokens = static_cast<double>(config.steps * config.batch_size * config.data.sequence_length);
    EXPECT_NEAR(tokens / 1e12, 1.0, 1e-3);
    EXPECT_EQ(config.budget_sampling, BudgetSampling::kReplicate);
    EXPECT_EQ(config.model.num_layers(), 56);
  }
}

TEST(RunConfigFiles, PaperFineTuningHoldsThePapersRecipe) {
  int num_runs = 0;
  for (const std::filesystem::path& file : run_files(configs_folder() / "paper")) {
    const TrainConfig config = read_config<TrainConfig>({file, {}});
    if (config.task != TrainTask::kSft) continue;
    SCOPED_TRACE(file.string());
    ++num_runs;
    EXPECT_EQ(config.steps, 30000);
    EXPECT_EQ(config.data.sequence_length, 16384);
    const bool is_dense = config.model.architecture == Architecture::kDense;
    const auto replicas = is_dense ? int64_t{1} : static_cast<int64_t>(config.model.budgets.size());
    EXPECT_EQ(config.batch_size * replicas, 512);
    std::vector<double> weights;
    for (const SourceConfig& source : config.data.train) weights.push_back(source.weight);
    EXPECT_EQ(weights, (std::vector<double>{35, 20, 20, 10, 10, 5}));
    EXPECT_EQ(config.initialize_from, "runs/paper/" + file.stem().string().substr(4));
  }
  EXPECT_EQ(num_runs, 4);
}

TEST(RunConfigFiles, EveryRunOfThePaperWritesToItsOwnFolder) {
  for (const std::filesystem::path& file : run_files(configs_folder() / "paper")) {
    EXPECT_EQ(read_config<TrainConfig>({file, {}}).run_folder, "runs/paper/" + file.stem().string());
  }
}

}  // namespace
}  // namespace smoe
