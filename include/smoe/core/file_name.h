// Names that people give to things, as parts of file names.
#pragma once

#include <string>

namespace smoe {

// `name` with an underscore for each slash, backslash, colon and space: budgets and texts may be called
// anything.
std::string file_name_of(std::string name);

}  // namespace smoe
