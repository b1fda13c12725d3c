// How the programs of each language are built and started in the sandbox, and what their exit statuses mean.
// Private to the code runner.
#pragma once

#include <string>

#include "smoe/eval/code_runner.h"

namespace smoe {

// `javatuples` are the bytes of that library's jar, or empty.
SandboxCommand command_for(const Program& program, const CodeRunnerOptions& options,
                           const std::string& javatuples);

ProgramVerdict verdict_of(ProgramLanguage language, const SandboxResult& run);
// The verdict in words, with the status of a failure.
std::string detail_of(ProgramLanguage language, ProgramVerdict verdict, const SandboxResult& run);

// The smallest program that shows that the tools of a language work in the sandbox, and what to install if
// not.
std::string trial_program(ProgramLanguage language);
const char* install_advice(ProgramLanguage language);

}  // namespace smoe
