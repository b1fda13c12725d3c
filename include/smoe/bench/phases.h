// Where the time of a step goes, by the scopes that the model's own kernels announce (RECORD_USER_SCOPE with a
// name that begins with "smoe::") and by autograd's nodes around everything else.
#pragma once

#include <map>
#include <memory>
#include <string>

namespace smoe {

// While it lives, adds up the time that this thread spends in each scope, without that of scopes inside it.
// One at a time in a process.
class PhaseRecorder {
 public:
  PhaseRecorder();
  ~PhaseRecorder();
  PhaseRecorder(const PhaseRecorder&) = delete;
  PhaseRecorder& operator=(const PhaseRecorder&) = delete;

  // Seconds on the wall by phase. Scopes of our kernels go by their own name ("attention forward"),
  // autograd's by "gradient sums" (adding into parameters' gradients) or "other backward".
  std::map<std::string, double> seconds() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace smoe
