// The command lines that start a command behind limits and namespaces. Private to the code sandbox.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "smoe/eval/code_sandbox.h"

namespace smoe {

using Words = std::vector<std::string>;

// Whom root becomes.
inline constexpr uid_t kNobody = 65534;
// The work folder inside the locked-down sandbox.
inline constexpr const char* kWorkFolder = "/tmp";

// An executable file for `name`, looked up in PATH unless it has a slash; empty if there is none.
std::string find_program(const std::string& name);

// NAME=value of all variables that a command sees.
Words environment_for(const std::string& home);

// choom, prlimit, setpriv and bwrap with their options, then the command. In the child, descriptor 3 takes
// bwrap's report and 4, 5, ... are the files of the command. Throws ConfigError if a tool of util-linux is
// missing.
Words locked_down_words(const std::string& bubblewrap, const SandboxCommand& command,
                        const SandboxLimits& limits);

// choom, prlimit and setpriv with their options, then the command.
Words unsafe_words(const SandboxCommand& command, const SandboxLimits& limits);

}  // namespace smoe
