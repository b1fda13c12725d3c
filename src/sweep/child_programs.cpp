#include "smoe/sweep/child_programs.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <chrono>
#include <cstring>

#include "smoe/core/error.h"

namespace smoe {
namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

// What posix_spawn needs besides the command, released at the end of the scope.
class SpawnSettings {
 public:
  SpawnSettings(const std::filesystem::path& log, const sigset_t& mask) {
    ::posix_spawn_file_actions_init(&files_);
    ::posix_spawn_file_actions_addopen(&files_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_addopen(&files_, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_APPEND,
                                       0644);
    ::posix_spawn_file_actions_adddup2(&files_, STDOUT_FILENO, STDERR_FILENO);
    ::posix_spawnattr_init(&attributes_);
    ::posix_spawnattr_setsigmask(&attributes_, &mask);
    // A group of its own: Ctrl-C reaches the programs once, through us, and not a second time by the
    // terminal, which they would take as the order to end without saving.
    ::posix_spawnattr_setpgroup(&attributes_, 0);
    ::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  }
  ~SpawnSettings() {
    ::posix_spawn_file_actions_destroy(&files_);
    ::posix_spawnattr_destroy(&attributes_);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  const posix_spawn_file_actions_t* files() const { return &files_; }
  const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  posix_spawn_file_actions_t files_;
  posix_spawnattr_t attributes_;
};

}  // namespace

ChildPrograms::ChildPrograms() {
  // Blocked and fetched by sigwaitinfo: no handler runs at a time of its own.
  sigemptyset(&awaited_);
  for (const int number : {SIGCHLD, SIGINT, SIGTERM}) sigaddset(&awaited_, number);
  ::pthread_sigmask(SIG_BLOCK, &awaited_, &mask_before_);
}

ChildPrograms::~ChildPrograms() {
  pass_on(SIGTERM);
  while (size() > 0) wait();
  ::pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
}

int64_t ChildPrograms::start(const std::vector<std::string>& command, const std::filesystem::path& log) {
  SMOE_ASSERT(!command.empty());
  std::vector<std::string> words = command;
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  // The programs must hear these signals, also where our own caller has blocked them.
  sigset_t mask = mask_before_;
  for (const int number : {SIGCHLD, SIGINT, SIGTERM}) sigdelset(&mask, number);
  const SpawnSettings settings(log, mask);
  pid_t process = 0;
  const int error = ::posix_spawn(&process, arguments[0], settings.files(), settings.attributes(),
                                  arguments.data(), environ);
  SMOE_CHECK(Error, error == 0, "{} could not be started with its output in {}: {}", command.front(),
             log.string(), std::strerror(error));
  start_of_[process] = seconds_now();
  return process;
}

void ChildPrograms::pass_on(int signal) {
  for (const auto& [process, start] : start_of_) ::kill(static_cast<pid_t>(process), signal);
}

std::vector<ProgramEnd> ChildPrograms::reap() {
  std::vector<ProgramEnd> ends;
  for (auto next = start_of_.begin(); next != start_of_.end();) {
    int status = 0;
    rusage usage{};
    const pid_t ended = ::wait4(static_cast<pid_t>(next->first), &status, WNOHANG, &usage);
    if (ended == 0) {
      ++next;
      continue;
    }
    SMOE_ASSERT(ended > 0);
    ProgramEnd end;
    end.id = next->first;
    end.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    end.was_stopped = signal_ != 0 && end.exit_code != 0;
    end.core_seconds = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
    end.wall_seconds = seconds_now() - next->second;
    ends.push_back(end);
    next = start_of_.erase(next);
  }
  return ends;
}

std::vector<ProgramEnd> ChildPrograms::wait() {
  while (size() > 0) {
    // First look, then wait: a program that ended before leaves its SIGCHLD pending, but only one for
    // several.
    std::vector<ProgramEnd> ends = reap();
    if (!ends.empty()) return ends;
    siginfo_t info{};
    const int number = ::sigwaitinfo(&awaited_, &info);
    if (number != SIGINT && number != SIGTERM) continue;
    if (signal_ == 0) signal_ = number;
    pass_on(number);
  }
  return {};
}

}  // namespace smoe
