#include "sandbox_words.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "process_tree.h"
#include "smoe/core/error.h"

namespace smoe {
namespace {

namespace fs = std::filesystem;

constexpr const char* kProgramPath = "/usr/local/bin:/usr/bin:/bin";
// The first two descriptors that bwrap inherits: its report, then the files in their order.
constexpr int kStatusNumber = 3;
constexpr int kFirstFileNumber = 4;
// A shell is the first process of the PID namespace: it waits for the command, and reaps orphans meanwhile.
// When it ends, the kernel ends and reaps all others before bwrap hears of it, so nothing outlives a run.
// (bwrap's own first process would be orphaned, and stay as a zombie in containers whose init does not wait.)
constexpr const char* kFirstProcess = "\"$@\"; exit $?";

void append(Words& words, const Words& more) { words.insert(words.end(), more.begin(), more.end()); }

// The tools of util-linux that set limits before the untrusted program starts: after exec there is no code of
// ours in the child that could go wrong between fork and exec of a program with many threads.
std::string util_linux(const std::string& name) {
  std::string path = find_program(name);
  SMOE_CHECK(ConfigError, !path.empty(),
             "generated code needs the program {}, which was not found; install the package util-linux",
             name);
  return path;
}

std::string limit_option(const char* name, int64_t soft, int64_t hard) {
  return fmt::format("--{}={}:{}", name, soft, hard);
}

// CPU seconds of one process: more than the wall limit, since a program may have several threads; it ends
// what the wall clock does not, such as a process that outlives everything.
int64_t cpu_seconds(const SandboxLimits& limits) {
  return static_cast<int64_t>(std::ceil(2.0 * limits.wall_seconds)) + 1;
}

Words limit_words(const SandboxLimits& limits) {
  // choom: where memory runs out all the same, the kernel ends the program and not the evaluation.
  Words words{util_linux("choom"), "-n", "1000", "--", util_linux("prlimit")};
  words.push_back(limit_option("core", 0, 0));
  words.push_back(limit_option("cpu", cpu_seconds(limits), cpu_seconds(limits) + 1));
  words.push_back(limit_option("fsize", limits.file_bytes, limits.file_bytes));
  words.push_back(limit_option("nofile", limits.open_files, limits.open_files));
  if (limits.address_space_bytes > 0) {
    words.push_back(limit_option("as", limits.address_space_bytes, limits.address_space_bytes));
  }
  return words;
}

// Root keeps rights over files and is exempt from the limit of processes: give both up.
Words drop_root_words() {
  if (geteuid() != 0) {
    return {};
  }
  const std::string nobody = std::to_string(kNobody);
  return {"--reuid", nobody, "--regid", nobody, "--clear-groups"};
}

// Programs, libraries and the few files of /etc that interpreters read. No home folder, no /var, no
// passwords.
Words system_folders() {
  Words words{"--ro-bind", "/usr", "/usr"};
  for (const char* folder : {"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}) {
    std::error_code ignored;
    if (fs::is_symlink(folder, ignored)) {
      append(words, {"--symlink", fs::read_symlink(folder).string(), folder});
    } else if (fs::is_directory(folder, ignored)) {
      append(words, {"--ro-bind", folder, folder});
    }
  }
  std::error_code error;
  for (fs::directory_iterator entry("/etc", error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name == "alternatives" || name == "ld.so.cache" || name == "localtime" || name.starts_with("java-")) {
      append(words, {"--ro-bind-try", entry->path().string(), entry->path().string()});
    }
  }
  return words;
}

Words bubblewrap_words(const std::string& program, const SandboxCommand& command,
                       const SandboxLimits& limits) {
  Words words{program, "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent"};
  append(words, {"--new-session", "--cap-drop", "ALL", "--hostname", "sandbox"});
  append(words, {"--as-pid-1", "--json-status-fd", std::to_string(kStatusNumber)});
  append(words, system_folders());
  // Before the shown paths, which may lie in it.
  append(words, {"--size", std::to_string(limits.folder_bytes), "--tmpfs", kWorkFolder});
  for (const fs::path& path : command.read_only_paths) {
    append(words, {"--ro-bind", path.string(), path.string()});
  }
  // --dev and / are folders in memory without a size limit, so they become read-only once they are filled.
  append(words, {"--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev"});
  int number = kFirstFileNumber;
  for (const SandboxFile& file : command.files) {
    append(words, {"--perms", "0644", "--file", std::to_string(number++),
                   fmt::format("{}/{}", kWorkFolder, file.name)});
  }
  append(words, {"--chdir", kWorkFolder, "--remount-ro", "/", "--"});
  return words;
}

}  // namespace

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    return access(name.c_str(), X_OK) == 0 ? fs::absolute(name).string() : "";
  }
  const char* path = std::getenv("PATH");
  std::string folders = fmt::format("{}:{}", path != nullptr ? path : "", kProgramPath);
  for (size_t begin = 0; begin < folders.size();) {
    const size_t end = std::min(folders.find(':', begin), folders.size());
    const fs::path candidate = fs::path(folders.substr(begin, end - begin)) / name;
    std::error_code hidden;  // a folder of PATH that may not be searched
    if (candidate.is_absolute() && fs::is_regular_file(candidate, hidden) &&
        access(candidate.c_str(), X_OK) == 0) {
      return candidate.string();
    }
    begin = end + 1;
  }
  return "";
}

Words environment_for(const std::string& home) {
  return {fmt::format("PATH={}", kProgramPath),
          fmt::format("HOME={}", home),
          fmt::format("TMPDIR={}", home),
          "LANG=C.UTF-8",
          "PYTHONHASHSEED=0",
          "PYTHONDONTWRITEBYTECODE=1",
          "OMP_NUM_THREADS=1",
          "OPENBLAS_NUM_THREADS=1",
          "MKL_NUM_THREADS=1"};
}

Words locked_down_words(const std::string& bubblewrap, const SandboxCommand& command,
                        const SandboxLimits& limits) {
  Words words = limit_words(limits);
  if (const Words drop = drop_root_words(); !drop.empty()) {
    append(words, {"--", util_linux("setpriv")});
    append(words, drop);
  }
  words.push_back("--");
  append(words, bubblewrap_words(bubblewrap, command, limits));
  // Inside, where the kernel counts the processes of this user namespace alone (Linux 5.14).
  append(words, {"prlimit", limit_option("nproc", limits.processes, limits.processes), "--"});
  append(words, {"sh", "-c", kFirstProcess, "sh"});
  append(words, command.arguments);
  return words;
}

Words unsafe_words(const SandboxCommand& command, const SandboxLimits& limits) {
  Words words = limit_words(limits);
  // The kernel counts all processes of the user, wherever they were started.
  const int64_t processes = count_threads_of_user(geteuid() == 0 ? kNobody : geteuid()) + limits.processes;
  append(words, {limit_option("nproc", processes, processes), "--", util_linux("setpriv")});
  append(words, drop_root_words());
  append(words, {"--no-new-privs", "--pdeathsig", "KILL", "--"});
  append(words, command.arguments);
  return words;
}

}  // namespace smoe
