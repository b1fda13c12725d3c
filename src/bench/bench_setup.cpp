#include "bench_setup.h"

#include <ATen/Parallel.h>

#include "smoe/train/loss.h"
#include "smoe/train/train_config.h"

namespace smoe {

SpeedReport measure_rows(std::vector<std::pair<SpeedRow, std::function<void()>>> rows,
                         const SpeedOptions& options) {
  std::vector<Contestant> contestants;
  for (const auto& [row, body] : rows) contestants.push_back({row.name, body});
  if (options.measure_peak) contestants.push_back(matmul_peak(kPeakProducts));
  std::vector<Samples> samples = measure_in_turns(contestants, options.repetitions);
  SpeedReport report;
  report.num_threads = at::get_num_threads();
  if (options.measure_peak) report.peak = matmul_peak_of(samples.back(), kPeakProducts);
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].first.samples = std::move(samples[i]);
    report.rows.push_back(std::move(rows[i].first));
  }
  return report;
}

at::Tensor library_loss(const Model& model, const Batch& batch, const ModelInput& input) {
  const ModelOutput output = model.forward(input);
  const at::Tensor weights_N = at::ones({batch.tokens_BT.numel()});
  const LossConfig loss;
  return head_cross_entropy(output.hidden_BTD.flatten(0, 1), model.output_weight(),
                            batch.targets_BT.flatten(), weights_N, {0.0, loss.head_chunk_tokens})
      .weighted_loss;
}

}  // namespace smoe
