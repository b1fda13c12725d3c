#include "smoe/core/hashing_progress.h"

#include "file_hash.h"

namespace smoe {

HashingProgress::HashingProgress(const std::filesystem::path& folder, const std::string& verb) {
  constexpr int64_t kMoment = int64_t{256} << 20;
  int64_t total = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.is_regular_file()) total += static_cast<int64_t>(entry.file_size());
  }
  if (total >= kMoment) bar_.emplace(verb + " " + folder.filename().string(), total, "bytes");
}

std::string HashingProgress::sha256_of_file(const std::filesystem::path& path) {
  return smoe::sha256_of_file(path, [this](int64_t num_bytes) {
    if (bar_) bar_->advance(num_bytes);
  });
}

}  // namespace smoe
