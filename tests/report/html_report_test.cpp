#include "smoe/report/html_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mask_figures_support.h"
#include "smoe/core/error.h"
#include "temporary_folder.h"

namespace smoe {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::TemporaryFolder;

// A run of 10 steps with two validations; budget L loses `gap` less than S.
void write_run(const TemporaryFolder& folder, const std::string& name, const std::string& learning_rate) {
  TrainConfig config;
  config.model.budgets = {{"S", 4}, {"L", 8}};
  config.data.tokenizer = "tokenizer.model";
  config.data.train = {{"a", "a", 1.0}};
  config.run_folder = name;
  config.steps = 10;
  config.batch_size = 4;
  config.micro_batch_size = 4;
  config.schedule.warmup_steps = 0;
  config.optimizer.learning_rate = std::stod(learning_rate);
  folder.write(name + "/config.yaml", dump_config(config));
  std::string metrics;
  for (int step = 5; step <= 10; step += 5) {
    metrics += fmt::format(
        R"({{"kind":"train","step":{0},"tokens":{1},"loss":{{"S":3.5,"L":3.25}},"learning_rate":0.001,"gradient_norm":null,)"
        R"("processed_tokens_per_s":1000.0,"seconds":{0}.0,"peak_memory_bytes":1073741824}})"
        "\n"
        R"({{"kind":"validation","step":{0},"tokens":{1},"sources":{{"books & co":{{"targets":10,"loss":{{"S":4.0,"L":3.0}},)"
        R"("bits_per_byte":{{"S":1.5,"L":1.25}}}},"web":{{"targets":10,"loss":{{"S":2.0,"L":1.0}},"bits_per_byte":{{"S":1,"L":1}}}}}},)"
        R"("router":{{"S":{{"load_entropy":0.9}},"L":{{"load_entropy":0.8}}}}}})"
        "\n",
        step, step * 2048);
  }
  folder.write(name + "/metrics.jsonl", metrics);
}

TEST(HtmlReport, ShowsRunsWithTheirDifferences) {
  const TemporaryFolder folder;
  write_run(folder, "one", "0.001");
  write_run(folder, "two", "0.002");
  const std::string html =
      html_report({read_run(folder / "one", {}, 0.5), read_run(folder / "two", {}, 0.5)});
  EXPECT_THAT(html, HasSubstr("<td>optimizer.learning_rate</td><td>0.001</td><td>0.002</td>"));
  EXPECT_THAT(html, HasSubstr("S 3.0000<br>L 2.0000"));  // means over the two sources
  EXPECT_THAT(html, HasSubstr("books &amp; co"));
  EXPECT_THAT(html, HasSubstr("4.0000<br><small>1.5000</small>"));
  EXPECT_THAT(html, HasSubstr("one S validation"));
  EXPECT_THAT(html, HasSubstr("one S less L"));
  EXPECT_THAT(html, HasSubstr("Training loss less that of one"));
  EXPECT_THAT(html, HasSubstr("Load entropy"));
}

TEST(HtmlReport, NeedsNoNetworkAndNoScript) {
  const TemporaryFolder folder;
  write_run(folder, "one", "0.001");
  const std::string html = html_report({read_run(folder / "one", {}, 0.5)});
  for (const char* outside : {"http:", "https:", "<script", "<link", "@import", "url("}) {
    EXPECT_THAT(html, Not(HasSubstr(outside)));
  }
}

TEST(HtmlReport, CountsTokensAndFlopsOfWhatIsDone) {
  const TemporaryFolder folder;
  write_run(folder, "one", "0.001");
  const RunData run = read_run(folder / "one", {}, 0.0);
  EXPECT_EQ(run.step, 10);
  EXPECT_EQ(run.total_tokens, 10.0 * 4.0 * 512.0);
  EXPECT_EQ(run.training_loss[1].first, "L");
  EXPECT_EQ(run.training_loss[1].second.back().value, 3.25);
  EXPECT_TRUE(std::isnan(run.gradient_norm.front().value));
}

TEST(HtmlReport, ShowsBenchmarksWithErrors) {
  const TemporaryFolder folder;
  write_run(folder, "one", "0.001");
  folder.write(
      "one/evaluations/core.json",
      R"({"budgets":[{"name":"S"},{"name":"L"}],"tasks":{"piqa":{"title":"PIQA","primary":"acc","metrics":{"acc":)"
      R"({"is_share":true,"budgets":{"S":{"value":0.5,"stderr":0.01},"L":{"value":0.625,"stderr":0.02}}}}}}})");
  const std::string html = html_report({read_run(folder / "one", {}, 0.5)});
  EXPECT_THAT(html, HasSubstr("<td>PIQA</td><td>acc *</td><td>50.00 <small>±1.00</small></td>"));
}

TEST(HtmlReport, ShowsMasksOfTheRunFolderAndThoseGiven) {
  const TemporaryFolder folder;
  write_run(folder, "one", "0.001");
  EXPECT_THAT(html_report({read_run(folder / "one", {}, 0.5)}), Not(HasSubstr("Routing masks")));
  folder.write("one/masks/masks.json", testing::masks_json());
  const auto more = folder.write("other/masks.json", testing::masks_json());
  const std::string html = html_report({read_run(folder / "one", {{}, {more}}, 0.5)});
  EXPECT_THAT(html, HasSubstr("<h3>masks</h3>"));
  EXPECT_THAT(html, HasSubstr("<h3>other</h3>"));
  EXPECT_THAT(html, HasSubstr("0.500 / 0.125<br><small>p = 0.0100</small>"));
  EXPECT_THAT(html, HasSubstr("<td>case</td><td>- / 0.250</td>"));
  EXPECT_THAT(html, HasSubstr("0.0 <small>50% against 25%</small>"));  // what topic b prefers
  EXPECT_THAT(html, HasSubstr("87.5% of the experts of S are among those of L"));
  // A choice in one group of buttons must not change another one.
  EXPECT_THAT(html, HasSubstr("id=\"masks0-1\""));
  EXPECT_THAT(html, HasSubstr("name=\"masks1-\""));
}

TEST(HtmlReport, NamesWhatIsNoRunAndNoResults) {
  const TemporaryFolder folder;
  EXPECT_THROW(read_run(folder / "none", {}, 0.5), DataError);
  write_run(folder, "one", "0.001");
  try {
    read_run(folder / "one", {{folder.write("results.json", "[]")}, {}}, 0.5);
    FAIL() << "no error";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("results.json: not a results file"));
  }
}

TEST(HtmlReport, ARunThatHasJustStartedHasNothingYet) {
  const TemporaryFolder folder;
  write_run(folder, "one", "0.001");
  folder.write("one/metrics.jsonl", "");
  EXPECT_THAT(html_report({read_run(folder / "one", {}, 0.5)}), HasSubstr("nothing yet"));
}

}  // namespace
}  // namespace smoe
