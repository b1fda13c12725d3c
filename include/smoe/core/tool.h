// What the main() of every command-line tool shares.
#pragma once

#include <functional>
#include <string>

namespace smoe {

// Runs `body` and returns its result as the exit status. Sets up logging and memory first. An
// exception becomes one line `error: ...` on standard error and an exit status: that of a
// smoe::Error, 1 for everything else.
int run_tool(const std::function<int()>& body);

// Makes malloc keep freed memory for the next allocation, process-wide.
void keep_freed_memory();

// "0.1.0", or "0.1.0 (git 1a2b3c4)" where the sources were a git checkout when CMake ran.
std::string version();

}  // namespace smoe
