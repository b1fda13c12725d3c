#include "smoe/core/file_name.h"

#include <algorithm>
#include <string_view>

namespace smoe {

std::string file_name_of(std::string name) {
  std::ranges::replace_if(
      name, [](char c) { return std::string_view("/\\: ").find(c) != std::string_view::npos; }, '_');
  return name;
}

}  // namespace smoe
