// Turns rows of training data into the input of the model.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "smoe/data/batch.h"
#include "smoe/model/model.h"

namespace smoe {

// Rows [begin, begin + count) of `batch`; tensors are views.
Batch slice_rows(const Batch& batch, int64_t begin, int64_t count);

// Routing segments of `segment_length` tokens, as the batch defines them (batch_segments).
SegmentMap make_segments(const Batch& batch, int64_t segment_length,
                         SelectorPosition position = SelectorPosition::kFirst);

// Tokens and positions on `device`, block-diagonal causal attention where the batch has documents, and
// make_segments(). `budget_of_row` as in ModelInput.
ModelInput make_model_input(const Batch& batch, int64_t segment_length, std::vector<int64_t> budget_of_row,
                            at::Device device, SelectorPosition position = SelectorPosition::kFirst);

}  // namespace smoe
