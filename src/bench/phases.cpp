#include "smoe/bench/phases.h"

#include <ATen/record_function.h>

#include <chrono>
#include <cstring>
#include <vector>

#include "smoe/core/error.h"

namespace smoe {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kPrefix = "smoe::";

std::string phase_of(const at::RecordFunction& function) {
  const std::string_view name = function.name();
  if (name.starts_with(kPrefix)) return std::string(name.substr(kPrefix.size()));
  return name.find("AccumulateGrad") != std::string_view::npos ? "gradient sums" : "other backward";
}

}  // namespace

struct PhaseRecorder::State {
  struct Open {
    std::string phase;
    Clock::time_point start;
    double inner_s = 0;
  };
  std::vector<Open> open;
  std::map<std::string, double> seconds;
  at::CallbackHandle handle = 0;

  void enter(const at::RecordFunction& function) { open.push_back({phase_of(function), Clock::now(), 0}); }
  void leave() {
    const Open scope = open.back();
    open.pop_back();
    const double total = std::chrono::duration<double>(Clock::now() - scope.start).count();
    seconds[scope.phase] += total - scope.inner_s;
    if (!open.empty()) open.back().inner_s += total;
  }

  static State* current;
};
PhaseRecorder::State* PhaseRecorder::State::current = nullptr;

PhaseRecorder::PhaseRecorder() : state_(std::make_unique<State>()) {
  SMOE_ASSERT(State::current == nullptr);
  State::current = state_.get();
  state_->handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback(
          [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
            State::current->enter(function);
            return nullptr;
          },
          [](const at::RecordFunction&, at::ObserverContext*) { State::current->leave(); })
          .scopes({at::RecordScope::USER_SCOPE, at::RecordScope::BACKWARD_FUNCTION}));
}

PhaseRecorder::~PhaseRecorder() {
  at::removeCallback(state_->handle);
  State::current = nullptr;
}

std::map<std::string, double> PhaseRecorder::seconds() const { return state_->seconds; }

}  // namespace smoe
