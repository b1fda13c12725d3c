// Both files of an indexed dataset: the input is one byte n, then 8 n bytes of .bin, then the .idx.
#include <algorithm>

#include "fuzz_target.h"
#include "smoe/data/indexed_dataset.h"

namespace smoe::fuzz {

void indexed_dataset(std::string_view input) {
  if (input.empty()) return;
  const size_t tokens = std::min(input.size() - 1, size_t{8} * static_cast<unsigned char>(input.front()));
  const std::filesystem::path prefix = scratch_folder() / "dataset";
  write_scratch(with_suffix(prefix, ".bin"), input.substr(1, tokens));
  write_scratch(with_suffix(prefix, ".idx"), input.substr(1 + tokens));
  accepts([&] {
    const IndexedDataset dataset(prefix);
    int64_t num_tokens = 0;
    for (int64_t index = 0; index < dataset.num_documents(); ++index) {
      num_tokens += static_cast<int64_t>(dataset.document(index).size());
    }
    if (num_tokens != dataset.num_tokens()) fail("the documents do not hold all tokens");
  });
}

}  // namespace smoe::fuzz
