// Temporary names and flushing, shared by the files and folders that appear only when they are complete.
#pragma once

#include <filesystem>
#include <string>

namespace smoe::detail {

// The folder that holds `path`; "." for a bare name.
std::filesystem::path parent_of(const std::filesystem::path& path);

// What the temporary names of `path` start with: ".NAME.tmp-".
std::string temporary_prefix(const std::filesystem::path& path);

// A hidden name beside `path` that no other thread or running process of this machine uses.
std::filesystem::path temporary_name(const std::filesystem::path& path);

// fsync of a file or folder. Throws Error.
void sync_path(const std::filesystem::path& path);

}  // namespace smoe::detail
