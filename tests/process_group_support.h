// Starts the processes of a small job on this machine, as a launcher would, and collects how they end.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

extern char** environ;

namespace smoe::testing {

using Environment = std::map<std::string, std::string>;

// A port of the loopback interface that nobody listens on at the moment.
inline int free_port() {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  ::bind(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof(address));
  ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &length);
  ::close(descriptor);
  return ntohs(address.sin_port);
}

// One program whose output, standard error included, goes to a file.
class ChildProcess {
 public:
  ChildProcess(const std::vector<std::string>& command, const Environment& variables,
               std::filesystem::path output)
      : output_(std::move(output)) {
    std::vector<std::string> arguments = command, settings;
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string text = *entry;
      if (!variables.contains(text.substr(0, text.find('=')))) settings.push_back(text);
    }
    for (const auto& [name, value] : variables) settings.push_back(name + "=" + value);
    std::vector<char*> argv, envp;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    for (std::string& setting : settings) envp.push_back(setting.data());
    argv.push_back(nullptr);
    envp.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output_.c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                     0644);
    posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    if (posix_spawn(&id_, argv[0], &actions, nullptr, argv.data(), envp.data()) != 0) id_ = -1;
    posix_spawn_file_actions_destroy(&actions);
  }
  ~ChildProcess() {
    if (id_ <= 0 || finished_) return;
    ::kill(id_, SIGKILL);
    ::waitpid(id_, nullptr, 0);
  }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t id() const { return id_; }
  void signal(int number) const {
    if (id_ > 0) ::kill(id_, number);
  }
  // Exit status, 128 + signal, -1 if it runs on after `limit_s`, or 127 if it could not be started.
  int wait(double limit_s) {
    if (id_ <= 0) return 127;
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(limit_s);
    int status = 0;
    while (!finished_ && std::chrono::steady_clock::now() < end) {
      if (::waitpid(id_, &status, WNOHANG) == id_) {
        finished_ = true;
        status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    }
    return status_;
  }
  std::string text() const {
    std::ostringstream stream;
    stream << std::ifstream(output_).rdbuf();
    return stream.str();
  }

 private:
  std::filesystem::path output_;
  pid_t id_ = -1;
  bool finished_ = false;
  int status_ = -1;
};

// torchrun's variables for each of `world_size` processes on this machine.
inline std::vector<Environment> loopback_ranks(int world_size, Environment more = {}) {
  const std::string port = std::to_string(free_port());
  std::vector<Environment> ranks;
  for (int rank = 0; rank < world_size; ++rank) {
    Environment variables = more;
    variables.merge(Environment{{"RANK", std::to_string(rank)},
                                {"LOCAL_RANK", std::to_string(rank)},
                                {"WORLD_SIZE", std::to_string(world_size)},
                                {"LOCAL_WORLD_SIZE", std::to_string(world_size)},
                                {"MASTER_ADDR", "127.0.0.1"},
                                {"MASTER_PORT", port},
                                {"OMP_WAIT_POLICY", "passive"}});
    ranks.push_back(std::move(variables));
  }
  return ranks;
}

// The processes of a job that all run the same command.
class LoopbackJob {
 public:
  LoopbackJob(const std::vector<std::string>& command, int world_size, const std::filesystem::path& folder,
              const Environment& more = {}) {
    std::filesystem::create_directories(folder);
    for (const Environment& variables : loopback_ranks(world_size, more)) {
      processes_.push_back(std::make_unique<ChildProcess>(
          command, variables, folder / ("rank-" + variables.at("RANK") + ".txt")));
    }
  }
  ChildProcess& rank(size_t rank) { return *processes_.at(rank); }
  size_t size() const { return processes_.size(); }
  std::vector<int> wait(double limit_s) {
    std::vector<int> statuses;
    for (const auto& process : processes_) statuses.push_back(process->wait(limit_s));
    return statuses;
  }
  std::string text() const {
    std::string all;
    for (size_t i = 0; i < processes_.size(); ++i)
      all += "--- rank " + std::to_string(i) + "\n" + processes_[i]->text();
    return all;
  }

 private:
  std::vector<std::unique_ptr<ChildProcess>> processes_;
};

// A torchrun that works: the one that SMOE_TORCHRUN names, or that of the environment beside the sources,
// whose Python part needs the full set of wheels. Empty if there is none.
inline std::string find_torchrun() {
  const char* const chosen = std::getenv("SMOE_TORCHRUN");
  const std::string path = chosen != nullptr ? chosen : SMOE_SOURCE_DIR "/.venv/bin/torchrun";
  const bool works =
      std::filesystem::exists(path) && std::system((path + " --help >/dev/null 2>&1").c_str()) == 0;
  return works ? path : "";
}

// Processes of `program` that were started, directly or not, by `ancestor`.
inline std::vector<pid_t> descendants(pid_t ancestor, const std::string& program) {
  std::map<pid_t, pid_t> parent_of;
  std::map<pid_t, std::string> name_of;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string number = entry.path().filename().string();
    if (number.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream stream(entry.path() / "stat");
    std::string text;
    std::getline(stream, text);
    const size_t open = text.find('(');
    const size_t close = text.rfind(')');
    if (open == std::string::npos || close == std::string::npos) continue;
    const pid_t id = std::stoi(number);
    name_of[id] = text.substr(open + 1, close - open - 1);
    std::istringstream rest(text.substr(close + 2));
    std::string state;
    rest >> state >> parent_of[id];
  }
  std::vector<pid_t> found;
  for (const auto& [id, name] : name_of) {
    if (name != program) continue;
    for (pid_t above = id; above > 1; above = parent_of[above]) {
      if (above == ancestor) found.push_back(id);
    }
  }
  return found;
}

}  // namespace smoe::testing
