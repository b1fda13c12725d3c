#include "conversion.h"

#include "smoe/core/error.h"
#include "smoe/model/weight_files.h"

namespace smoe {
namespace {

// The section of a run's config that says what the weights are.
struct ConvertedRun {
  ModelConfig model;
};
template <class Visitor>
void visit_fields(Visitor& visitor, ConvertedRun& run) {
  visitor.field("model", run.model, "architecture and sizes");
}

}  // namespace

DeferredTensor converted_tensor(std::string name, std::vector<int64_t> sizes, at::ScalarType dtype,
                                std::function<at::Tensor()> make) {
  return {std::move(name), dtype, std::move(sizes),
          [dtype, source = std::move(make)] { return source().to(dtype); }};
}

std::string converted_config(const ModelConfig& config, std::optional<int64_t> sequence_length) {
  const std::string model = dump_config(ConvertedRun{config});
  return sequence_length ? fmt::format("{}data:\n  sequence_length: {}\n", model, *sequence_length) : model;
}

InterchangeSummary summarize(const std::filesystem::path& folder,
                             const std::vector<DeferredTensor>& tensors) {
  InterchangeSummary summary;
  summary.num_tensors = tensors.size();
  for (const DeferredTensor& tensor : tensors) summary.num_bytes += tensor.num_bytes();
  for (const std::string& name : list_weight_files(folder)) {
    summary.num_files += name == kWeightsIndexFile ? 0 : 1;
  }
  return summary;
}

}  // namespace smoe
