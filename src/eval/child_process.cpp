#include "child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "process_tree.h"
#include "smoe/core/error.h"

namespace smoe {
namespace {

constexpr int kLowestNumber = 100;
constexpr int kFirstInherited = 3;
constexpr double kSampleSeconds = 0.025;
// How long the rest of a killed namespace may take to vanish before its supervisor is killed too.
constexpr double kKillGraceSeconds = 2.0;

std::string error_text(int code) { return std::strerror(code); }

// Moves a descriptor out of the range of the numbers that children use.
FileDescriptor lift(int number, const char* what) {
  SMOE_CHECK(Error, number >= 0, "cannot make {} for generated code: {}", what, error_text(errno));
  FileDescriptor low(number);
  const int high = fcntl(number, F_DUPFD_CLOEXEC, kLowestNumber);
  SMOE_CHECK(Error, high >= 0,
             "cannot make {} for generated code: {}; raise the limit of open files (ulimit -n)", what,
             error_text(errno));
  return FileDescriptor(high);
}

struct Pipe {
  FileDescriptor read_end;
  FileDescriptor write_end;
};

Pipe make_pipe() {
  std::array<int, 2> ends{-1, -1};
  SMOE_CHECK(Error, pipe2(ends.data(), O_CLOEXEC) == 0, "cannot make a pipe for generated code: {}",
             error_text(errno));
  FileDescriptor write_low(ends[1]);
  Pipe pipe;
  pipe.read_end = lift(ends[0], "a pipe");
  pipe.write_end = lift(fcntl(write_low.number(), F_DUPFD_CLOEXEC, kLowestNumber), "a pipe");
  fcntl(pipe.read_end.number(), F_SETFL, O_NONBLOCK);
  return pipe;
}

// posix_spawn's two option objects, released in every case.
class SpawnSettings {
 public:
  SpawnSettings() {
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
};

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) {
    pointers.push_back(const_cast<char*>(text.c_str()));
  }
  pointers.push_back(nullptr);
  return pointers;
}

pid_t spawn(const ChildRequest& request, const FileDescriptor& output, const FileDescriptor& errors) {
  SpawnSettings settings;
  posix_spawn_file_actions_t* actions = &settings.actions;
  posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(actions, output.number(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(actions, errors.number(), STDERR_FILENO);
  int next = kFirstInherited;
  for (const FileDescriptor* file : request.inherited) {
    posix_spawn_file_actions_adddup2(actions, file->number(), next++);
  }
  // Whatever else this process has open, marked close-on-exec or not, is none of the child's business.
  posix_spawn_file_actions_addclosefrom_np(actions, next);
  if (!request.working_folder.empty()) {
    posix_spawn_file_actions_addchdir_np(actions, request.working_folder.c_str());
  }
  sigset_t all;
  sigset_t none;
  sigfillset(&all);
  sigemptyset(&none);
  posix_spawnattr_setsigdefault(&settings.attributes, &all);
  posix_spawnattr_setsigmask(&settings.attributes, &none);
  posix_spawnattr_setflags(
      &settings.attributes,
      static_cast<short>(POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSID));
  pid_t child = -1;
  const int code =
      posix_spawn(&child, request.arguments.front().c_str(), actions, &settings.attributes,
                  pointers_to(request.arguments).data(), pointers_to(request.environment).data());
  SMOE_CHECK(Error, code == 0, "cannot start {} for generated code: {}", request.arguments.front(),
             error_text(code));
  return child;
}

// The end of a stream of bytes.
class Tail {
 public:
  explicit Tail(int64_t capacity) : capacity_(static_cast<size_t>(capacity)) {}
  void append(const char* bytes, size_t count) {
    text_.append(bytes, count);
    if (text_.size() > 2 * capacity_ + 65536) {
      trim();
    }
  }
  std::string take() {
    trim();
    return std::move(text_);
  }

 private:
  void trim() {
    if (text_.size() > capacity_) {
      text_.erase(0, text_.size() - capacity_);
    }
  }
  size_t capacity_;
  std::string text_;
};

class Supervisor {
 public:
  explicit Supervisor(const ChildRequest& request)
      : request_(request), tails_{Tail(request.tail_bytes), Tail(request.tail_bytes)} {
    Pipe output = make_pipe();
    Pipe errors = make_pipe();
    child_ = spawn(request, output.write_end, errors.write_end);
    start_ = std::chrono::steady_clock::now();
    streams_ = {std::move(output.read_end), std::move(errors.read_end)};
    // Where the kernel has no pidfd, the sampling interval notices the end instead.
    const int number = static_cast<int>(syscall(SYS_pidfd_open, child_, 0));
    exit_signal_ = FileDescriptor(number);
  }

  ~Supervisor() {
    if (!reaped_) {
      kill(child_, SIGKILL);
      reap();
    }
  }
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  ChildOutcome run() {
    while (!has_exited()) {
      wait_for_events();
      drain();
      check_limits();
    }
    outcome_.seconds = stop_seconds_ > 0.0 ? stop_seconds_ : elapsed();
    if (!request_.is_namespace_supervisor) {
      kill_tree();  // what the command left behind
    }
    reap();
    drain_leftovers();
    outcome_.stdout_tail = tails_[0].take();
    outcome_.stderr_tail = tails_[1].take();
    return std::move(outcome_);
  }

 private:
  double elapsed() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  // Leaves the zombie, so that its process group cannot be given to others before kill_tree.
  bool has_exited() const {
    siginfo_t info{};
    const int code = waitid(P_PID, static_cast<id_t>(child_), &info, WEXITED | WNOHANG | WNOWAIT);
    return (code == 0 && info.si_pid == child_) || (code != 0 && errno == ECHILD);
  }

  void reap() {
    reaped_ = true;
    int status = 0;
    pid_t code = -1;
    do {
      code = waitpid(child_, &status, 0);
    } while (code < 0 && errno == EINTR);
    outcome_.exit_status = code != child_        ? -1
                           : WIFSIGNALED(status) ? 128 + WTERMSIG(status)
                                                 : WEXITSTATUS(status);
  }

  void wait_for_events() {
    double seconds = kSampleSeconds;
    if (stop_seconds_ == 0.0) {
      seconds = std::clamp(request_.wall_seconds - elapsed(), 0.0, kSampleSeconds);
    }
    std::array<pollfd, 3> events{pollfd{streams_[0].number(), POLLIN, 0},
                                 pollfd{streams_[1].number(), POLLIN, 0},
                                 pollfd{exit_signal_.number(), POLLIN, 0}};
    poll(events.data(), events.size(), static_cast<int>(seconds * 1000.0) + 1);
  }

  // Reads what is there, a bounded amount, so that endless output cannot keep us from the limits.
  void drain() {
    std::array<char, 65536> buffer;
    for (size_t index = 0; index < streams_.size(); ++index) {
      for (int round = 0; round < 16 && streams_[index].is_open(); ++round) {
        const ssize_t count = read(streams_[index].number(), buffer.data(), buffer.size());
        if (count > 0) {
          output_bytes_ += count;
          tails_[index].append(buffer.data(), static_cast<size_t>(count));
        } else if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
          streams_[index].close();
        } else {
          break;
        }
      }
    }
  }

  void check_limits() {
    if (stop_seconds_ > 0.0) {
      if (elapsed() > stop_seconds_ + kKillGraceSeconds) {
        kill(child_, SIGKILL);
      } else if (!request_.is_namespace_supervisor) {
        kill_tree();  // again: a fork can slip between listing and killing
      }
      return;
    }
    if (output_bytes_ > request_.output_bytes) {
      stop(ChildEnd::kOutputLimit);
    } else if (elapsed() >= request_.wall_seconds) {
      stop(ChildEnd::kTimedOut);
    } else if (elapsed() >= next_sample_) {
      next_sample_ = elapsed() + kSampleSeconds;
      if (sample_memory() > request_.memory_bytes) {
        stop(ChildEnd::kMemoryLimit);
      }
    }
  }

  int64_t sample_memory() {
    int64_t bytes = resident_bytes(child_);
    for (const pid_t process : descendants_of(child_)) {
      bytes += resident_bytes(process);
    }
    outcome_.peak_memory_bytes = std::max(outcome_.peak_memory_bytes, bytes);
    return bytes;
  }

  void stop(ChildEnd reason) {
    outcome_.end = reason;
    stop_seconds_ = elapsed();
    kill_tree();
  }

  void kill_tree() {
    if (request_.is_namespace_supervisor) {
      // bwrap's child is the first process of the PID namespace: the kernel ends all others with it, and
      // bwrap then ends by itself and leaves no zombie behind.
      const std::vector<pid_t> children = children_of(child_);
      for (const pid_t process : children) {
        kill(process, SIGKILL);
      }
      if (children.empty()) {
        kill(child_, SIGKILL);
      }
      return;
    }
    const std::vector<pid_t> descendants = descendants_of(child_);
    kill(-child_, SIGKILL);
    for (const pid_t process : descendants) {
      kill(process, SIGKILL);
    }
  }

  // After the end the pipes hold a last piece; they reach their end when the last process below is gone.
  void drain_leftovers() {
    const double deadline = elapsed() + kKillGraceSeconds;
    drain();
    while ((streams_[0].is_open() || streams_[1].is_open()) && elapsed() < deadline) {
      std::array<pollfd, 2> events{pollfd{streams_[0].number(), POLLIN, 0},
                                   pollfd{streams_[1].number(), POLLIN, 0}};
      poll(events.data(), events.size(), 50);
      drain();
    }
  }

  const ChildRequest& request_;
  pid_t child_ = -1;
  bool reaped_ = false;
  std::chrono::steady_clock::time_point start_;
  std::array<FileDescriptor, 2> streams_;
  std::array<Tail, 2> tails_;
  FileDescriptor exit_signal_;
  int64_t output_bytes_ = 0;
  double next_sample_ = 0.0;
  double stop_seconds_ = 0.0;  // when a limit was hit; 0: not yet
  ChildOutcome outcome_;
};

}  // namespace

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    close();
    number_ = std::exchange(other.number_, -1);
  }
  return *this;
}

void FileDescriptor::close() {
  if (number_ >= 0) {
    ::close(std::exchange(number_, -1));
  }
}

FileDescriptor make_memory_file(const std::string& bytes) {
  FileDescriptor file = lift(memfd_create("smoe-sandbox", MFD_CLOEXEC), "a file in memory");
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t count = write(file.number(), bytes.data() + done, bytes.size() - done);
    SMOE_CHECK(Error, count > 0 || errno == EINTR, "cannot fill a file in memory for generated code: {}",
               error_text(errno));
    done += count > 0 ? static_cast<size_t>(count) : 0;
  }
  lseek(file.number(), 0, SEEK_SET);
  return file;
}

std::string read_memory_file(const FileDescriptor& file) {
  std::string bytes;
  std::array<char, 4096> buffer;
  for (off_t offset = 0;;) {
    const ssize_t count = pread(file.number(), buffer.data(), buffer.size(), offset);
    if (count <= 0) {
      return bytes;
    }
    bytes.append(buffer.data(), static_cast<size_t>(count));
    offset += count;
  }
}

ChildOutcome run_child(const ChildRequest& request) { return Supervisor(request).run(); }

}  // namespace smoe
