#include "token_embedding.h"

#include <torch/csrc/autograd/custom_function.h>

namespace smoe {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class EmbeddingFunction : public torch::autograd::Function<EmbeddingFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& table_VD, const at::Tensor& tokens) {
    context->save_for_backward({tokens});
    context->saved_data["vocab_size"] = table_VD.size(0);
    return at::embedding(table_VD, tokens);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    constexpr int64_t kNoPadding = -1;
    const at::Tensor tokens = context->get_saved_variables()[0];
    return {at::embedding_dense_backward(gradients[0].to(at::kFloat), tokens,
                                         context->saved_data["vocab_size"].toInt(), kNoPadding,
                                         /*scale_grad_by_freq=*/false),
            at::Tensor()};
  }
};

}  // namespace

at::Tensor embed_tokens(const at::Tensor& table_VD, const at::Tensor& tokens) {
  if (table_VD.scalar_type() != at::kBFloat16) return at::embedding(table_VD, tokens);
  return EmbeddingFunction::apply(table_VD, tokens);
}

}  // namespace smoe
