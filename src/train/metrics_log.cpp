#include "smoe/train/metrics_log.h"

#include <nlohmann/json.hpp>

#include "append_log.h"
#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/core/log.h"

namespace smoe {
namespace {

using Json = nlohmann::ordered_json;

Json by_budget(const std::vector<std::string>& budgets, const BudgetValues& values) {
  Json json = Json::object();
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i]) json[budgets[i]] = *values[i];
  }
  return json;
}

Json by_budget(const std::vector<std::string>& budgets, const std::vector<double>& values) {
  return by_budget(budgets, BudgetValues(values.begin(), values.end()));
}

Json panels_to_json(const std::vector<std::string>& budgets, const std::vector<RouterPanel>& panels) {
  Json json = Json::object();
  for (size_t i = 0; i < panels.size(); ++i) {
    for (const RouterPanelField& field : kRouterPanelFields) {
      json[budgets[i]][field.name] = panels[i].*field.value;
    }
  }
  return json;
}

enum class Rollbacks { kLikeOthers, kAll };

// The lines of steps up to `last_step`, and, where asked for, all about rollbacks. A last line without its
// line break was being written when the process was killed; any other line that is not JSON means that
// something else wrote to the file.
std::string lines_up_to(const std::filesystem::path& path, int64_t last_step, Rollbacks rollbacks) {
  const std::string text = read_file(path);
  std::string kept;
  size_t begin = 0;
  for (int64_t number = 1; begin < text.size(); ++number) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;
    const std::string line = text.substr(begin, end - begin);
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    SMOE_CHECK(DataError, json.is_object() && json.contains("step") && json["step"].is_number_integer(),
               "{}:{}: not a metrics line (a JSON object with an integer `step`). Remove or repair the line.",
               path.string(), number);
    const bool stays = rollbacks == Rollbacks::kAll && json.value("kind", "") == "rollback";
    if (stays || json["step"].get<int64_t>() <= last_step) kept += line + "\n";
    begin = end + 1;
  }
  return kept;
}

}  // namespace

MetricsLog::MetricsLog(std::filesystem::path path, int64_t resumed_step) : path_(std::move(path)) {
  if (std::filesystem::exists(path_))
    write_file_atomically(path_, lines_up_to(path_, resumed_step, Rollbacks::kLikeOthers));
  log_ = std::make_unique<AppendLog>(path_, /*truncate=*/false);
}

MetricsLog::~MetricsLog() = default;

void check_metrics(const std::filesystem::path& path) {
  if (std::filesystem::exists(path)) lines_up_to(path, 0, Rollbacks::kLikeOthers);
}

void MetricsLog::write_line(const std::string& json) { log_->append(json + "\n"); }

// The line counts as one of the step that comes next: a run that is resumed from the same checkpoint fails
// and rolls back again, and must not have two.
void MetricsLog::on_rollback(const RollbackReport& report) {
  log_.reset();
  try {
    write_file_atomically(path_, lines_up_to(path_, report.to_step, Rollbacks::kAll));
  } catch (const Error& error) {
    spdlog::error(
        "{}: the lines of steps after {}, which the rollback made void, stay in the file beside those of the "
        "repeated steps: {}",
        path_.string(), report.to_step, error.what());
  }
  log_ = std::make_unique<AppendLog>(path_, /*truncate=*/false);
  write_line(Json({{"kind", "rollback"},
                   {"step", report.to_step + 1},
                   {"failed_step", report.failed_step},
                   {"to_step", report.to_step},
                   {"from_position", report.from_position},
                   {"to_position", report.to_position},
                   {"reason", report.reason}})
                 .dump());
}

void MetricsLog::on_step(const StepReport& report) {
  Json json = {{"kind", "train"},
               {"step", report.step},
               {"tokens", report.tokens},
               {"processed_tokens", report.processed_tokens},
               {"loss", by_budget(report.budgets, report.losses)},
               {"weighted_loss", report.weighted_loss},
               {"balance_loss", report.balance_loss},
               {"router_z_loss", report.router_z_loss},
               {"learning_rate", report.learning_rate},
               {"gradient_norm", report.gradient_norm},
               {"skipped", report.skipped},
               {"processed_tokens_per_s", report.processed_tokens_per_s},
               {"unique_tokens_per_s", report.unique_tokens_per_s},
               {"seconds", report.seconds},
               {"peak_memory_bytes", report.peak_memory_bytes}};
  if (!report.panels.empty()) json["router"] = panels_to_json(report.budgets, report.panels);
  write_line(json.dump());
}

void MetricsLog::on_validation(const ValidationReport& report) {
  Json sources = Json::object();
  for (const SourceValidation& source : report.sources) {
    sources[source.name] = {{"targets", source.num_targets},
                            {"loss", by_budget(report.budgets, source.losses)},
                            {"bits_per_byte", by_budget(report.budgets, source.bits_per_byte)}};
  }
  Json json = {{"kind", "validation"},
               {"step", report.step},
               {"tokens", report.tokens},
               {"sources", sources},
               {"mean_loss", report.mean_loss()},
               {"seconds", report.seconds}};
  Json nesting = Json::object();
  for (size_t i = 0; i < report.nesting.size(); ++i) {
    nesting[report.budgets[i] + " in " + report.budgets[i + 1]] = report.nesting[i];
  }
  if (!nesting.empty()) json["nesting"] = nesting;
  if (!report.panels.empty()) json["router"] = panels_to_json(report.budgets, report.panels);
  write_line(json.dump());
}

void MetricsLog::on_evaluation(int64_t step, const std::map<std::string, double>& results) {
  write_line(Json({{"kind", "evaluation"}, {"step", step}, {"results", results}}).dump());
}

void MetricsLog::on_save(const SaveReport& report) {
  write_line(Json({{"kind", "checkpoint"},
                   {"step", report.step},
                   {"asynchronous", report.asynchronous},
                   {"blocked_s", report.blocked_s}})
                 .dump());
}

double ValidationReport::mean_loss() const {
  double sum = 0.0;
  double count = 0.0;
  for (const SourceValidation& source : sources) {
    for (const double loss : source.losses) {
      sum += loss;
      count += 1.0;
    }
  }
  return count == 0.0 ? 0.0 : sum / count;
}

}  // namespace smoe
