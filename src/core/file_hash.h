// SHA-256 of a file for those who want to show how far it is.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace smoe {

// As sha256_of_file(path); `progress` is told how many bytes were read each time some were.
std::string sha256_of_file(const std::filesystem::path& path,
                           const std::function<void(int64_t num_bytes)>& progress);

}  // namespace smoe
