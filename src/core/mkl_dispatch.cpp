// Lets MKL use its AVX-512 and AVX2 kernels on processors of every vendor.
//
// MKL inside LibTorch asks this function whether the processor is Intel's and runs generic kernels if not, even
// where the processor has AVX-512: matrix products then take twice the time or more. A program's own
// definition wins over the one in libtorch_cpu.so. The kernels are still chosen by what the processor
// says it can do. With a LibTorch that has no MKL nobody calls it.
#include <cstdlib>

// The environment variable SMOE_MKL_VENDOR_CHECK=1 brings MKL's own choice back, for comparison.
extern "C" __attribute__((visibility("default"))) int mkl_serv_intel_cpu_true() {
  static const int answer = [] {
    const char* vendor_check = std::getenv("SMOE_MKL_VENDOR_CHECK");
    const bool ask_vendor = vendor_check != nullptr && vendor_check[0] == '1';
    return ask_vendor ? __builtin_cpu_is("intel") : 1;
  }();
  return answer;
}
