// The entry of libFuzzer; SMOE_FUZZ_TARGET names the function.
#include "fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  smoe::fuzz::SMOE_FUZZ_TARGET({reinterpret_cast<const char*>(data), size});
  return 0;
}
