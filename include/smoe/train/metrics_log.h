// metrics.jsonl: every report as one JSON object a line.
#pragma once

#include <filesystem>
#include <fstream>

#include "smoe/train/callbacks.h"

namespace smoe {

class MetricsLog : public TrainCallback {
 public:
  // Appends to `path` after removing the lines of steps later than `resumed_step` and a half-written last
  // line, so that no step is there twice. Throws DataError naming the line if an earlier line is not JSON.
  MetricsLog(std::filesystem::path path, int64_t resumed_step);

  void on_step(const StepReport& report) override;
  void on_validation(const ValidationReport& report) override;
  void on_evaluation(int64_t step, const std::map<std::string, double>& results) override;

 private:
  void write_line(const std::string& json);

  std::filesystem::path path_;
  std::ofstream stream_;
};

}  // namespace smoe
