#include "smoe/core/tool.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string_view>

#include "smoe/core/error.h"
#include "smoe/core/log.h"

#ifdef __GLIBC__
#include <malloc.h>

#include <limits>
#endif

namespace smoe {
namespace {

int fail(std::string_view message, int exit_code) {
  std::fflush(stdout);
  // A progress bar may stand on the line.
  const std::string line = fmt::format("{}error: {}\n", terminal_is_interactive() ? "\r\x1b[K" : "", message);
  std::fputs(line.c_str(), stderr);
  try {
    log_error_to_files(message);
  } catch (const std::exception&) {
    // The disk may be full; the console has been told what matters.
  }
  return exit_code;
}

// Output that never reached its file, for example on a full disk, must not look like success.
int check_output(int exit_code) {
  errno = 0;
  const bool flushed = std::fflush(stdout) == 0;
  const int reason = errno;
  if (flushed && std::ferror(stdout) == 0) return exit_code;
  return fail(fmt::format("cannot write all of the output{}; free some space or write it elsewhere, and run "
                          "the command again",
                          flushed ? "" : fmt::format(": {}", std::strerror(reason))),
              exit_code == 0 ? 1 : exit_code);
}

// LibTorch appends a C++ stack trace to its messages, which tells a user nothing.
std::string_view without_stack_trace(std::string_view message) {
  message = message.substr(0, message.find("\nException raised from "));
  while (message.ends_with('\n')) message.remove_suffix(1);
  return message;
}

}  // namespace

int run_tool(const std::function<int()>& body) {
  try {
    // A file that grows beyond a limit of the system is then a failed write, as on a full disk, and not the
    // end of the process.
    std::signal(SIGXFSZ, SIG_IGN);
    keep_freed_memory();
    initialize_logging();
    return check_output(body());
  } catch (const Error& error) {
    return fail(error.what(), error.exit_code());
  } catch (const std::bad_alloc&) {
    return fail("out of memory; use smaller micro-batches, fewer workers or a smaller model", 1);
  } catch (const std::exception& error) {
    return fail(without_stack_trace(error.what()), 1);
  }
}

void keep_freed_memory() {
#ifdef __GLIBC__
  // glibc maps every large block anew and unmaps it when it is freed. A training step frees and
  // allocates the same hundreds of megabytes each time, and the page faults of touching fresh pages
  // then cost more than the arithmetic, above all on virtual machines. Large blocks from the heap,
  // and a heap that never shrinks, fault once.
  mallopt(M_MMAP_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_TRIM_THRESHOLD, -1);
#endif
}

std::string version() { return SMOE_VERSION_TEXT; }

}  // namespace smoe
