// metrics.jsonl: every report as one JSON object a line.
#pragma once

#include <filesystem>
#include <memory>

#include "smoe/train/callbacks.h"

namespace smoe {

class AppendLog;

class MetricsLog : public TrainCallback {
 public:
  // Appends to `path` after removing the lines of steps later than `resumed_step` and a half-written last
  // line, so that no step is there twice. Throws DataError naming the line if an earlier line is not JSON.
  // A line that cannot be written, say on a full disk, is kept and tried again with the next one.
  MetricsLog(std::filesystem::path path, int64_t resumed_step);
  ~MetricsLog() override;

  void on_step(const StepReport& report) override;
  void on_validation(const ValidationReport& report) override;
  void on_evaluation(int64_t step, const std::map<std::string, double>& results) override;
  void on_save(const SaveReport& report) override;
  // Removes the lines of the steps that are void; those about earlier rollbacks stay. If the shortened file
  // cannot be written, that is logged and all lines stay.
  void on_rollback(const RollbackReport& report) override;

 private:
  void write_line(const std::string& json);

  std::filesystem::path path_;
  std::unique_ptr<AppendLog> log_;
};

// Throws DataError as MetricsLog would for a file of an earlier run. No file is fine.
void check_metrics(const std::filesystem::path& path);

}  // namespace smoe
