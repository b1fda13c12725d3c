// Loss of every budget on fixed rows of each validation source.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "smoe/data/training_data.h"
#include "smoe/distributed/communicator.h"
#include "smoe/model/model.h"
#include "smoe/train/callbacks.h"
#include "smoe/train/train_config.h"

namespace smoe {

class Validation {
 public:
  // Opens the validation sources of `config`, and keeps a reference to it. Same errors as ValidationData.
  Validation(const TrainConfig& config, const Tokenizer& tokenizer);

  bool empty() const { return sources_.empty(); }

  // Every budget on the first validation_rows rows of each source, without gradients, noise or random masks.
  // A loss is the sum over target tokens divided once by their number. `step` and `tokens` are left at 0.
  ValidationReport run(const Model& model) const;
  // The same with the rows shared out over the processes of `all`; every process gets the whole report.
  // Losses are NaN if a process could not run its rows because of numbers that are not finite.
  ValidationReport run(const Model& model, Communicator& all) const;

 private:
  struct Tally;
  void run_rows(const Model& model, const Batch& rows, SelectionControls& controls, Tally& tally,
                std::vector<double>& sums) const;
  SourceValidation run_source(const Model& model, size_t source, Communicator& all, Tally& tally) const;
  int64_t first_segment(const ValidationData& data, const RankRange& rows, Communicator& all) const;

  const TrainConfig& config_;
  std::vector<std::unique_ptr<ValidationData>> sources_;
};

}  // namespace smoe
