// The training lines on standard output, for people.
#pragma once

#include <string>

#include "smoe/train/callbacks.h"

namespace smoe {

// "step 120/1000  loss 1B 5.430 2B 5.310  lr 3.9e-03  norm 0.80  12.3k tok/s  1.20 GiB  ETA 3m 20s"
std::string describe_step(const StepReport& report);
// "step 200  validation  books: 1B 5.400 (1.710 bits/byte) 2B 5.280 (1.670 bits/byte)  nesting 1B in 2B 0.93"
std::string describe_validation(const ValidationReport& report);

class ConsoleLog : public TrainCallback {
 public:
  void on_step(const StepReport& report) override;
  void on_validation(const ValidationReport& report) override;
  void on_evaluation(int64_t step, const std::map<std::string, double>& results) override;
  void on_rollback(const RollbackReport& report) override;
};

}  // namespace smoe
