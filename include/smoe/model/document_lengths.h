// Which tokens of packed rows belong together, for attention that stays inside documents.
//
// Shape legend: B rows, T tokens.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

namespace smoe {

// For each row the lengths of its documents, which sum to T.
using DocumentLengths = std::vector<std::vector<int64_t>>;

// The runs of equal numbers in each row of `documents_BT` (int64); padding is a run too.
DocumentLengths document_lengths(const at::Tensor& documents_BT);

}  // namespace smoe
