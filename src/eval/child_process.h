// One child process with pipes on its output: started, watched against limits, ended with everything below
// it, and reaped. Private to the code sandbox.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace smoe {

// Owns a file descriptor. All are close-on-exec and at least 100, so that they never collide with the numbers
// that children get.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int number) : number_(number) {}
  ~FileDescriptor() { close(); }
  FileDescriptor(FileDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;

  int number() const { return number_; }
  bool is_open() const { return number_ >= 0; }
  void close();

 private:
  int number_ = -1;
};

// An unnamed file in memory, positioned at its start. Throws Error if the system gives none.
FileDescriptor make_memory_file(const std::string& bytes);
// All bytes of it.
std::string read_memory_file(const FileDescriptor& file);

struct ChildRequest {
  std::vector<std::string> arguments;  // the first is an absolute path
  std::vector<std::string> environment;
  std::vector<const FileDescriptor*> inherited;  // become 3, 4, ... in the child
  std::string working_folder;                    // empty: the parent's
  // True: the child is bwrap, and ending its only child ends all. False: end the process group and all
  // descendants that can be found.
  bool is_namespace_supervisor = false;
  double wall_seconds = 0.0;
  int64_t memory_bytes = 0;
  int64_t output_bytes = 0;
  int64_t tail_bytes = 0;
};

enum class ChildEnd { kExited, kTimedOut, kMemoryLimit, kOutputLimit };

struct ChildOutcome {
  ChildEnd end = ChildEnd::kExited;
  int exit_status = 0;  // 128 + n after signal n
  std::string stdout_tail;
  std::string stderr_tail;
  double seconds = 0.0;
  int64_t peak_memory_bytes = 0;
};

// Throws Error if the program cannot be started.
ChildOutcome run_child(const ChildRequest& request);

}  // namespace smoe
