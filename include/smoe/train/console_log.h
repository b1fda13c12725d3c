// The training lines on standard output, for people.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "smoe/train/callbacks.h"

namespace smoe {

// "step 120/1000  loss 1B 5.430 2B 5.310  lr 3.9e-03  norm 0.80  12.3k tok/s  1.20 GiB  ETA 3m 20s"
std::string describe_step(const StepReport& report);
// "step 200  validation  books: 1B 5.400 (1.710 bits/byte) 2B 5.280 (1.670 bits/byte)  nesting 1B in 2B 0.93"
std::string describe_validation(const ValidationReport& report);

// "step 200  evaluation  arc_easy/acc  1B 0.3100  2B 0.3300", one line a metric. Budgets stand in the order
// of `budgets`, others after them.
std::string describe_evaluation(int64_t step, const std::map<std::string, double>& results,
                                const std::vector<std::string>& budgets);

class ConsoleLog : public TrainCallback {
 public:
  // `budgets`: names, in the order of the config.
  explicit ConsoleLog(std::vector<std::string> budgets) : budgets_(std::move(budgets)) {}
  void on_step(const StepReport& report) override;
  void on_validation(const ValidationReport& report) override;
  void on_evaluation(int64_t step, const std::map<std::string, double>& results) override;
  void on_rollback(const RollbackReport& report) override;

 private:
  std::vector<std::string> budgets_;
};

}  // namespace smoe
