#include "process_tree.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <string>

namespace smoe {
namespace {

namespace fs = std::filesystem;

// The numeric names in a folder of /proc; empty if it vanished.
std::vector<pid_t> numeric_entries(const fs::path& folder) {
  std::vector<pid_t> numbers;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    pid_t number = 0;
    const auto [stop, problem] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (problem == std::errc() && stop == name.data() + name.size()) {
      numbers.push_back(number);
    }
  }
  return numbers;
}

fs::path proc_folder(pid_t process) { return fs::path("/proc") / std::to_string(process); }

}  // namespace

std::vector<pid_t> children_of(pid_t process) {
  std::vector<pid_t> children;
  const fs::path tasks = proc_folder(process) / "task";
  for (const pid_t thread : numeric_entries(tasks)) {
    std::ifstream list(tasks / std::to_string(thread) / "children");
    for (pid_t child = 0; list >> child;) {
      children.push_back(child);
    }
  }
  return children;
}

std::vector<pid_t> descendants_of(pid_t process) {
  std::vector<pid_t> found = children_of(process);
  for (size_t next = 0; next < found.size(); ++next) {
    for (const pid_t child : children_of(found[next])) {
      // A process that moves while we look can be seen twice.
      if (std::find(found.begin(), found.end(), child) == found.end()) {
        found.push_back(child);
      }
    }
  }
  return found;
}

int64_t resident_bytes(pid_t process) {
  std::ifstream file(proc_folder(process) / "statm");
  int64_t total_pages = 0;
  int64_t resident_pages = 0;
  file >> total_pages >> resident_pages;
  return file ? resident_pages * sysconf(_SC_PAGESIZE) : 0;
}

int64_t count_threads_of_user(uid_t user) {
  int64_t threads = 0;
  for (const pid_t process : numeric_entries("/proc")) {
    struct stat status {};
    if (stat(proc_folder(process).c_str(), &status) == 0 && status.st_uid == user) {
      threads += static_cast<int64_t>(numeric_entries(proc_folder(process) / "task").size());
    }
  }
  return threads;
}

}  // namespace smoe
