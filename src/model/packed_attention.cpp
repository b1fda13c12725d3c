#include "packed_attention.h"

#include <algorithm>
#include <utility>

#include "smoe/core/error.h"
#include "smoe/routing/host_to_device.h"

namespace smoe {
namespace {

// [N, heads, K]
at::Tensor flat_tokens(const at::Tensor& x) { return x.flatten(0, 1); }

at::Tensor flash_attention(const at::Tensor& q_NHK, const at::Tensor& k_NGK, const at::Tensor& v_NGK,
                           const PackedDocuments& documents) {
  return std::get<0>(at::_flash_attention_forward(
      q_NHK, k_NGK, v_NGK, documents.offsets, documents.offsets, documents.max_length, documents.max_length,
      /*dropout_p=*/0.0, /*is_causal=*/true, /*return_debug_mask=*/false));
}

// The kernel for float32. It has no grouped queries, and takes a batch of one.
at::Tensor efficient_attention(const at::Tensor& q_NHK, const at::Tensor& k_NGK, const at::Tensor& v_NGK,
                               const PackedDocuments& documents) {
  constexpr int64_t kCausalFromTopLeft = 1;
  const int64_t group = q_NHK.size(1) / k_NGK.size(1);
  const auto expand = [&](const at::Tensor& x_NGK) {
    return (group == 1 ? x_NGK : x_NGK.repeat_interleave(group, 1)).unsqueeze(0);
  };
  return std::get<0>(at::_efficient_attention_forward(
                         q_NHK.unsqueeze(0), expand(k_NGK), expand(v_NGK), /*bias=*/{}, documents.offsets,
                         documents.offsets, documents.max_length, documents.max_length, /*dropout_p=*/0.0,
                         kCausalFromTopLeft, /*compute_log_sumexp=*/true))
      .squeeze(0);
}

}  // namespace

PackedDocuments pack_documents(DocumentLengths lengths, at::Device device) {
  std::vector<int32_t> offsets = {0};
  PackedDocuments packed;
  for (const std::vector<int64_t>& row : lengths) {
    for (const int64_t length : row) {
      offsets.push_back(offsets.back() + static_cast<int32_t>(length));
      packed.max_length = std::max(packed.max_length, length);
    }
  }
  packed.lengths = std::move(lengths);
  packed.offsets = copy_to_device(at::tensor(offsets, at::TensorOptions().dtype(at::kInt)), device);
  return packed;
}

at::Tensor packed_attention(const at::Tensor& q_BTHK, const at::Tensor& k_BTGK, const at::Tensor& v_BTGK,
                            const PackedDocuments& documents) {
  SMOE_ASSERT(q_BTHK.is_cuda() && q_BTHK.size(2) % k_BTGK.size(2) == 0);
  const auto run = q_BTHK.scalar_type() == at::kFloat ? efficient_attention : flash_attention;
  return run(flat_tokens(q_BTHK), flat_tokens(k_BTGK), flat_tokens(v_BTGK), documents).view_as(q_BTHK);
}

at::Tensor packed_attention_reference(const at::Tensor& q_BTHK, const at::Tensor& k_BTGK,
                                      const at::Tensor& v_BTGK, const PackedDocuments& documents) {
  const int64_t group = q_BTHK.size(2) / k_BTGK.size(2);
  // Heads first, as the operator wants them.
  const auto prepare = [](const at::Tensor& x) { return x.flatten(0, 1).transpose(0, 1).unsqueeze(0); };
  const at::Tensor q = prepare(q_BTHK);
  const at::Tensor k = prepare(k_BTGK.repeat_interleave(group, 2));
  const at::Tensor v = prepare(v_BTGK.repeat_interleave(group, 2));
  const at::Tensor host_offsets = documents.offsets.cpu();
  const int32_t* offset = host_offsets.const_data_ptr<int32_t>();
  std::vector<at::Tensor> pieces;
  for (int64_t s = 0; s + 1 < host_offsets.size(0); ++s) {
    const int64_t length = offset[s + 1] - offset[s];
    const auto piece = [&](const at::Tensor& x) { return x.narrow(2, offset[s], length); };
    pieces.push_back(at::scaled_dot_product_attention(piece(q), piece(k), piece(v), {}, /*dropout_p=*/0.0,
                                                      /*is_causal=*/true));
  }
  return at::cat(pieces, 2).squeeze(0).transpose(0, 1).reshape(q_BTHK.sizes());
}

}  // namespace smoe
