#include "smoe/train/stop_signal.h"

#include <signal.h>
#include <time.h>

namespace smoe {
namespace {

// The only type that a handler may write.
volatile sig_atomic_t received_signal = 0;
struct sigaction previous_terminate;
struct sigaction previous_interrupt;

// Of the monotonic clock, which no change of the time of day moves. Written before received_signal.
volatile sig_atomic_t arrival_s = 0;

sig_atomic_t now_s() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);  // one of the few functions that a handler may call
  return static_cast<sig_atomic_t>(now.tv_sec);
}

extern "C" void note_signal(int number) {
  arrival_s = now_s();
  received_signal = number;
}

}  // namespace

StopSignal::StopSignal() {
  received_signal = 0;
  struct sigaction action = {};
  action.sa_handler = note_signal;
  sigemptyset(&action.sa_mask);
  // Reset after the first: an impatient second Ctrl-C must work. Restart: file writes go on undisturbed.
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  sigaction(SIGTERM, &action, &previous_terminate);
  sigaction(SIGINT, &action, &previous_interrupt);
}

StopSignal::~StopSignal() {
  sigaction(SIGTERM, &previous_terminate, nullptr);
  sigaction(SIGINT, &previous_interrupt, nullptr);
}

int StopSignal::received() const { return received_signal; }

double StopSignal::seconds_since() const {
  return received_signal == 0 ? 0.0 : static_cast<double>(now_s() - arrival_s);
}

}  // namespace smoe
