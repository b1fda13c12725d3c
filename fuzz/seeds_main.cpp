// Feeds files to a fuzz target without libFuzzer, so that seeds and former findings are a test with any
// compiler:
//   fuzz_seeds TARGET FILE_OR_FOLDER...
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <vector>

#include "fuzz_target.h"

namespace {

using Target = void (*)(std::string_view);

const std::map<std::string, Target> kTargets = {{"config", smoe::fuzz::config},
                                                {"safetensors", smoe::fuzz::safetensors},
                                                {"indexed_dataset", smoe::fuzz::indexed_dataset},
                                                {"tokenizer_json", smoe::fuzz::tokenizer_json},
                                                {"chat_jsonl", smoe::fuzz::chat_jsonl},
                                                {"package_index", smoe::fuzz::package_index},
                                                {"http_body", smoe::fuzz::http_body}};

std::vector<std::filesystem::path> list_files(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path)) return {path};
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  return files;
}

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) smoe::fuzz::fail("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

int main(int argc, char** argv) {
  const auto target = argc < 3 ? kTargets.end() : kTargets.find(argv[1]);
  if (target == kTargets.end()) {
    std::fprintf(stderr, "usage: fuzz_seeds TARGET FILE_OR_FOLDER...; targets:");
    for (const auto& [name, function] : kTargets) std::fprintf(stderr, " %s", name.c_str());
    std::fprintf(stderr, "\n");
    return 2;
  }
  size_t num_inputs = 0;
  for (int i = 2; i < argc; ++i) {
    for (const std::filesystem::path& file : list_files(argv[i])) {
      // Before the call: the last line then names the input that ended the process.
      std::printf("%s\n", file.c_str());
      std::fflush(stdout);
      target->second(read(file));
      ++num_inputs;
    }
  }
  std::printf("%zu inputs without a finding\n", num_inputs);
  // A target without seeds would pass for ever.
  return num_inputs > 0 ? 0 : 1;
}
