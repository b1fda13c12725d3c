// A whole safetensors file: every byte of every tensor that it claims to hold is read.
#include <ATen/ATen.h>

#include "fuzz_target.h"
#include "smoe/model/safetensors.h"

namespace smoe::fuzz {

void safetensors(std::string_view input) {
  const std::filesystem::path path = scratch_folder() / "input.safetensors";
  write_scratch(path, input);
  accepts([&] {
    const SafetensorsFile file(path);
    uint64_t total_bytes = 0;
    unsigned char sum = 0;
    for (const std::string& name : file.names()) {
      const at::Tensor tensor = file.tensor(name).contiguous();
      const auto* bytes = static_cast<const unsigned char*>(tensor.const_data_ptr());
      for (size_t i = 0; i < tensor.nbytes(); ++i) sum = static_cast<unsigned char>(sum ^ bytes[i]);
      total_bytes += tensor.nbytes();
    }
    volatile unsigned char keep = sum;  // the reads must not be optimised away
    (void)keep;
    if (total_bytes > input.size()) fail("the tensors have more bytes than the file");
  });
}

}  // namespace smoe::fuzz
