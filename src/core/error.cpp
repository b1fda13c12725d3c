#include "smoe/core/error.h"

namespace smoe::detail {

void assertion_failed(const char* condition, const char* file, int line) {
  throw std::logic_error(
      fmt::format("internal error at {}:{}: `{}` does not hold; please report this", file, line, condition));
}

}  // namespace smoe::detail
