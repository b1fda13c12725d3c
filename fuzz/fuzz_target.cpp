#include "fuzz_target.h"

#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "smoe/core/error.h"

namespace smoe::fuzz {
namespace {

// Removed at the end of the process, however many inputs it has seen.
struct ScratchFolder {
  std::filesystem::path path;

  ScratchFolder() {
    const bool has_memory = ::access("/dev/shm", W_OK) == 0;
    const std::filesystem::path parent = has_memory ? "/dev/shm" : std::filesystem::temp_directory_path();
    std::string name = (parent / "smoe-fuzz-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) fail("cannot make a folder like " + name);
    path = name;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};

}  // namespace

bool accepts(const std::function<void()>& body) {
  try {
    body();
    return true;
  } catch (const Error& error) {
    if (std::string_view(error.what()).empty()) fail("an error without a message");
    return false;
  }
}

void fail(const std::string& message) {
  std::fprintf(stderr, "fuzz target: %s\n", message.c_str());
  std::abort();
}

const std::filesystem::path& scratch_folder() {
  static const ScratchFolder folder;
  return folder.path;
}

void write_scratch(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) fail("cannot write " + path.string());
}

}  // namespace smoe::fuzz
