// Hashes files with a progress bar where they are big.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "smoe/core/progress.h"

namespace smoe {

class HashingProgress {
 public:
  // For the files that `folder` holds now. `verb` begins the bar's title. Without a bar where they are hashed
  // in a moment.
  HashingProgress(const std::filesystem::path& folder, const std::string& verb);

  // SHA-256 of a file of the folder as 64 lower-case hex digits.
  std::string sha256_of_file(const std::filesystem::path& path);

 private:
  std::optional<ProgressBar> bar_;
};

}  // namespace smoe
