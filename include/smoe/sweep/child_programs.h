// Starts programs and waits for them, passing on the signals that ask to stop.
#pragma once

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace smoe {

struct ProgramEnd {
  int64_t id = 0;
  int exit_code = 0;          // 128 + signal if one killed it
  bool was_stopped = false;   // it ended after SIGINT or SIGTERM was passed on to it
  double core_seconds = 0.0;  // CPU time of the program and its children
  double wall_seconds = 0.0;
};

// While an object lives, SIGINT and SIGTERM do not end this process: they are passed on to the programs. One
// object at a time.
class ChildPrograms {
 public:
  ChildPrograms();
  // Stops and awaits what still runs.
  ~ChildPrograms();
  ChildPrograms(const ChildPrograms&) = delete;
  ChildPrograms& operator=(const ChildPrograms&) = delete;

  // Starts a program; its output and errors are appended to `log`. Returns its id. Throws Error if it can't
  // be started.
  int64_t start(const std::vector<std::string>& command, const std::filesystem::path& log);

  // Waits until at least one program has ended. Returns all that have; none if none runs.
  std::vector<ProgramEnd> wait();

  size_t size() const { return start_of_.size(); }
  // The first SIGINT or SIGTERM that has arrived, or 0.
  int signal() const { return signal_; }

 private:
  void pass_on(int signal);
  std::vector<ProgramEnd> reap();

  std::map<int64_t, double> start_of_;  // seconds on the steady clock, by process id
  sigset_t awaited_;
  sigset_t mask_before_;
  int signal_ = 0;
};

}  // namespace smoe
