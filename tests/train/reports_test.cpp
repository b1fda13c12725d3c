// Metrics lines, TensorBoard events, console lines, plots, and the config's cross-field rules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/train/config_difference.h"
#include "smoe/train/console_log.h"
#include "smoe/train/loss_plot.h"
#include "smoe/train/metrics_log.h"
#include "smoe/train/tensorboard.h"
#include "smoe/train/train_config.h"
#include "temporary_folder.h"

namespace smoe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

StepReport make_report(int64_t step) {
  StepReport report;
  report.step = step;
  report.total_steps = 1000;
  report.tokens = 100 * step;
  report.budgets = {"1B", "2B"};
  report.losses = {5.43, 5.31};
  report.learning_rate = 3.9e-3;
  report.gradient_norm = 0.8;
  report.processed_tokens_per_s = 12300;
  report.remaining_s = 200;
  report.peak_memory_bytes = int64_t{3} << 29;
  return report;
}

TEST(ConsoleLog, ShowsLossPerBudgetSpeedAndTimeLeft) {
  StepReport report = make_report(120);
  const std::string line = describe_step(report);
  EXPECT_THAT(line,
              AllOf(HasSubstr("step 120/1000"), HasSubstr("loss 1B 5.430 2B 5.310"), HasSubstr("lr 3.9e-03"),
                    HasSubstr("norm 0.80"), HasSubstr("tok/s"), HasSubstr("ETA 3m 20s")));
  report.losses[0].reset();
  EXPECT_THAT(describe_step(report), HasSubstr("loss 2B 5.310"));
}

TEST(ConsoleLog, ShowsEvaluationsInTheOrderOfTheBudgetsInTheConfig) {
  const std::map<std::string, double> results = {{"piqa/acc/XL", 0.6},     {"piqa/acc/S", 0.5},
                                                 {"piqa/acc/M", 0.55},     {"piqa/acc_norm/S", 0.25},
                                                 {"piqa/acc_norm/M", 0.3}, {"piqa/acc/other", 0.1}};
  EXPECT_EQ(describe_evaluation(7, results, {"S", "M", "XL"}),
            "step 7  evaluation  piqa/acc  S 0.5000  M 0.5500  XL 0.6000  other 0.1000\n"
            "step 7  evaluation  piqa/acc_norm  S 0.2500  M 0.3000");
}

TEST(MetricsLog, DropsLinesOfStepsThatWillBeRepeated) {
  const testing::TemporaryFolder folder;
  const std::filesystem::path path = folder / "metrics.jsonl";
  {
    MetricsLog log(path, 0);
    for (int64_t step = 1; step <= 5; ++step) log.on_step(make_report(step));
  }
  const std::string half = read_file(path) + R"({"kind":"train","st)";
  write_file_atomically(path, half);
  MetricsLog(path, 3).on_step(make_report(4));
  std::vector<int64_t> steps;
  std::istringstream stream(read_file(path));
  for (std::string line; std::getline(stream, line);) steps.push_back(nlohmann::json::parse(line)["step"]);
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 2, 3, 4}));
}

TEST(MetricsLog, NamesALineThatIsNoMetricsLine) {
  const testing::TemporaryFolder folder;
  write_file_atomically(folder / "metrics.jsonl", "{\"step\": 1}\nhello\n");
  try {
    MetricsLog(folder / "metrics.jsonl", 3);
    FAIL() << "no error";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("metrics.jsonl:2"));
  }
}

TEST(Crc32c, HasTheValuesOfItsSpecification) {
  // RFC 3720, B.4.
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
}

// A reader of event files that shares no code with the writer.
class EventReader {
 public:
  explicit EventReader(std::string bytes) : bytes_(std::move(bytes)) {}
  std::map<int64_t, std::map<std::string, float>> scalars;
  std::string version;
  std::vector<int64_t> session_starts;

  void read() {
    for (size_t at = 0; at < bytes_.size();) {
      uint64_t length = 0;
      uint32_t length_crc = 0, data_crc = 0;
      std::memcpy(&length, &bytes_[at], 8);
      std::memcpy(&length_crc, &bytes_[at + 8], 4);
      ASSERT_LE(at + 16 + length, bytes_.size());
      const std::string data = bytes_.substr(at + 12, length);
      std::memcpy(&data_crc, &bytes_[at + 12 + length], 4);
      EXPECT_EQ(length_crc, masked(bytes_.substr(at, 8)));
      EXPECT_EQ(data_crc, masked(data));
      read_event(data);
      at += 16 + length;
    }
  }

 private:
  static uint32_t masked(const std::string& bytes) {
    uint32_t crc = ~0u;  // bit by bit, without a table
    for (const unsigned char byte : bytes) {
      crc ^= byte;
      for (int i = 0; i < 8; ++i) crc = crc & 1 ? (crc >> 1) ^ 0x82f63b78u : crc >> 1;
    }
    crc = ~crc;
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
  }
  static uint64_t varint(const std::string& data, size_t& at) {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(data[at++]);
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
  }
  // Fields of a message: number -> raw values.
  static std::multimap<uint64_t, std::string> fields(const std::string& data) {
    std::multimap<uint64_t, std::string> result;
    for (size_t at = 0; at < data.size();) {
      const uint64_t key = varint(data, at);
      size_t size = 0;
      if ((key & 7) == 0) {
        const size_t begin = at;
        varint(data, at);
        result.emplace(key >> 3, data.substr(begin, at - begin));
        continue;
      }
      if ((key & 7) == 1) size = 8;
      if ((key & 7) == 5) size = 4;
      if ((key & 7) == 2) size = varint(data, at);
      result.emplace(key >> 3, data.substr(at, size));
      at += size;
    }
    return result;
  }
  void read_event(const std::string& data) {
    const auto event = fields(data);
    size_t at = 0;
    const int64_t step = static_cast<int64_t>(varint(event.find(2)->second, at));
    if (event.contains(3)) version = event.find(3)->second;
    if (event.contains(7)) session_starts.push_back(step);
    if (!event.contains(5)) return;
    for (const auto& [number, value] : fields(event.find(5)->second)) {
      ASSERT_EQ(number, 1u);
      const auto scalar = fields(value);
      float number_value = 0;
      std::memcpy(&number_value, scalar.find(2)->second.data(), 4);
      scalars[step][scalar.find(1)->second] = number_value;
    }
  }
  std::string bytes_;
};

TEST(TensorBoardLog, WritesEventsThatAnIndependentReaderUnderstands) {
  const testing::TemporaryFolder folder;
  {
    TensorBoardLog log(folder.path(), 299);
    log.on_step(make_report(300));
    log.on_step(make_report(400));
    log.on_evaluation(400, {{"arc_easy/1B", 0.25}});
  }
  std::filesystem::path file;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) file = entry.path();
  ASSERT_THAT(file.filename().string(), ::testing::StartsWith("events.out.tfevents."));
  EventReader reader(read_file(file));
  reader.read();
  EXPECT_EQ(reader.version, "brain.Event:2");
  EXPECT_EQ(reader.session_starts, (std::vector<int64_t>{300}));
  EXPECT_FLOAT_EQ(reader.scalars[300]["train/loss/1B"], 5.43f);
  EXPECT_FLOAT_EQ(reader.scalars[400]["train/learning_rate"], 3.9e-3f);
  EXPECT_FLOAT_EQ(reader.scalars[400]["evaluation/arc_easy/1B"], 0.25f);
}

TEST(LossPlot, ReadsCurvesPerBudget) {
  const testing::TemporaryFolder folder;
  MetricsLog log(folder / "metrics.jsonl", 0);
  log.on_step(make_report(1));
  log.on_step(make_report(2));
  ValidationReport validation;
  validation.step = 2;
  validation.tokens = 200;
  validation.budgets = {"1B", "2B"};
  validation.sources = {{"a", 10, {4.0, 3.0}, {1.0, 1.0}}, {"b", 10, {6.0, 4.0}, {1.0, 1.0}}};
  log.on_validation(validation);
  const std::vector<LossCurve> curves = read_loss_curves(folder.path(), "run ", 0.5);
  ASSERT_EQ(curves.size(), 4u);
  EXPECT_EQ(curves[0].label, "run 1B");
  EXPECT_EQ(curves[0].tokens, (std::vector<double>{100, 200}));
  EXPECT_TRUE(curves[2].is_validation);
  EXPECT_EQ(curves[2].losses, (std::vector<double>{5.0}));
  plot_losses({folder.path()}, {folder / "loss.svg", "a \"quoted\" title", 0.9});
  EXPECT_THAT(read_file(folder / "loss.svg"),
              AllOf(HasSubstr("<svg"), HasSubstr("points: validation"), HasSubstr("quoted")));
  plot_losses({folder.path()}, {folder / "loss.png", "title", 0.9});
  EXPECT_THAT(read_file(folder / "loss.png"), ::testing::StartsWith("\x89PNG"));
  try {
    plot_losses({folder.path()}, {folder / "loss.pdf", "title", 0.9});
    ADD_FAILURE() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("loss.pdf"), HasSubstr("only .svg and .png")));
  }
}

TEST(LossPlot, SaysWhatIsMissing) {
  const testing::TemporaryFolder folder;
  EXPECT_THROW(read_loss_curves(folder.path(), "", 0.9), DataError);
  const std::string path = std::getenv("PATH");
  MetricsLog(folder / "metrics.jsonl", 0).on_step(make_report(1));
  ::setenv("PATH", folder.path().c_str(), 1);
  try {
    plot_losses({folder.path()}, {folder / "loss.svg"});
    ADD_FAILURE() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("gnuplot-nox"));
  }
  ::setenv("PATH", path.c_str(), 1);
}

TEST(ConfigDifference, KeysOfANewerVersionAreNoneWhereTheyHaveTheirDefaults) {
  const std::vector<ConfigDifference> differences =
      without_new_defaults(config_differences("a: 1\nold: 2\n", "a: 1\nold: 3\nnew: {x: 4, y: 6}\n"),
                           "a: 7\nold: 3\nnew: {x: 4, y: 5}\n");
  EXPECT_EQ(describe_differences(differences), "  old: 2 -> 3\n  new.y: (absent) -> 6");
}

TEST(ConfigDifference, IsNoneWhereAnEarlierVersionHadNoEvaluation) {
  const std::string now = dump_config(TrainConfig{});
  const std::string earlier = now.substr(0, now.find("\nevaluation:") + 1);
  ASSERT_LT(earlier.size(), now.size());
  EXPECT_EQ(describe_differences(without_new_defaults(config_differences(earlier, now), now)), "");
}

TEST(ConfigDifference, NamesTheElementsOfAListThatIsEmptyOnOneSide) {
  EXPECT_EQ(describe_differences(config_differences("tasks: []\n", "tasks: [a]\n")),
            "  tasks.0: (absent) -> a");
  EXPECT_EQ(describe_differences(config_differences("tasks: [a]\n", "tasks: []\n")),
            "  tasks.0: a -> (absent)");
  EXPECT_EQ(describe_differences(config_differences("x: 1\n", "x: 1\ntasks: []\n")),
            "  tasks: (absent) -> []");
}

TEST(ConfigDifference, NamesKeysThatChangedCameAndWent) {
  const auto differences =
      config_differences("a: 1\nb: {c: 2, d: [1, 2]}\n", "a: 1\nb: {c: 3, d: [1, 2, 4]}\ne: x\n");
  EXPECT_EQ(describe_differences(differences), "  b.c: 2 -> 3\n  b.d.2: (absent) -> 4\n  e: (absent) -> x");
}

// The problems of a config that is minimal but for `yaml`.
std::string problems_of(const std::string& yaml) {
  const std::string base =
      "run_folder: r\ndata: {tokenizer: t.json, train: [{name: a, path: p}]}\n"
      "model: {num_experts: 8, budgets: [{name: s, experts_per_layer: 0}, {name: l, experts_per_layer: "
      "4}]}\n";
  try {
    config_from_yaml<TrainConfig>(base + yaml, "test.yaml");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(TrainConfig, CrossFieldRulesNameBothKeys) {
  EXPECT_EQ(problems_of("loss: {budget_weight_power: 0}\n"), "no error");
  EXPECT_THAT(problems_of(""),
              AllOf(HasSubstr("loss.budget_weight_power"), HasSubstr("model.budgets.0.experts_per_layer")));
  EXPECT_THAT(problems_of("loss: {budget_weights: [1, 2, 3]}\n"),
              AllOf(HasSubstr("loss.budget_weights"), HasSubstr("3 weights for 2 budgets")));
  EXPECT_THAT(problems_of("loss: {budget_weights: [1, 0]}\n"), HasSubstr("above 0"));
  EXPECT_THAT(problems_of("loss: {budget_weight_power: 0}\nsteps: 50\nschedule: {warmup_steps: 60}\n"),
              AllOf(HasSubstr("schedule.warmup_steps"), HasSubstr("steps"), HasSubstr("60")));
  EXPECT_THAT(problems_of("loss: {budget_weight_power: 0}\nsteps: 100\n"
                          "schedule: {kind: wsd, warmup_steps: 60, decay_fraction: 0.5}\n"),
              AllOf(HasSubstr("schedule.decay_fraction"), HasSubstr("do not fit into 100 steps")));
  EXPECT_THAT(problems_of("loss: {budget_weight_power: 0}\ndevice: gpu\n"),
              HasSubstr("cpu, cuda and cuda:N"));
  EXPECT_THAT(problems_of("loss: {budget_weight_power: 0}\noptimizer: {beta2: 1}\n"),
              HasSubstr("optimizer.beta2"));
  EXPECT_THAT(problems_of("loss: {budget_weight_power: 0}\noptimizr: {}\n"),
              AllOf(HasSubstr("optimizr"), HasSubstr("optimizer")));
}

}  // namespace
}  // namespace smoe
