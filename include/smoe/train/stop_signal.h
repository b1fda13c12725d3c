// SIGTERM and SIGINT as a request that the training loop answers between two steps.
#pragma once

namespace smoe {

// While an object lives, the first signal is only noted and the second one ends the process at once, as
// signals do by default. One object at a time.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // The number of the signal that arrived, or 0.
  int received() const;
  // Time since the signal arrived; 0 if none has.
  double seconds_since() const;
};

}  // namespace smoe
