#include "causal_attention.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>

#include "matrix_multiply.h"
#include "smoe/core/error.h"
#include "softmax_kernels.h"

// Shape legend of the kernels: M queries of a block, J keys of a block, K head width.
namespace smoe {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Few queries a block waste little above the diagonal, many keys make long products. A block of scores of the
// forward is 128 KB, a pair of blocks of the backward 256 KB.
constexpr int64_t kForwardQueries = 64;
constexpr int64_t kForwardKeys = 512;
constexpr int64_t kBackwardQueries = 512;
constexpr int64_t kBackwardKeys = 64;
static_assert(kForwardKeys % kForwardQueries ==
              0);  // else a block of keys could lie above a query of its block

// All heads of a tensor are [B, T, heads, K] here, as they lie in memory: beside each other within a token,
// which is how projections read and write them, or each by itself (head_major). Blocks of the first kind
// would share few sets of the caches, since their rows are a power of two apart.
at::Tensor split_heads(const at::Tensor& x, int64_t width) {
  return x.contiguous().view({x.size(0), x.size(1), -1, width});
}
at::Tensor head_major(const at::Tensor& x_BTHK) {
  return x_BTHK.new_empty({x_BTHK.size(0), x_BTHK.size(2), x_BTHK.size(1), x_BTHK.size(3)}).transpose(1, 2);
}

// One head.
template <class Scalar>
struct Head {
  Scalar* data;
  int64_t stride;
  int64_t width;

  Scalar* row(int64_t token) const { return data + token * stride; }
  MatrixView<Scalar> rows(int64_t begin, int64_t end) const {
    return {row(begin), end - begin, width, false, stride};
  }
};

template <class Scalar>
Head<const Scalar> head_of(const at::Tensor& x_BTHK, int64_t row, int64_t head) {
  return {x_BTHK.const_data_ptr<Scalar>() + row * x_BTHK.stride(0) + head * x_BTHK.stride(2),
          x_BTHK.stride(1), x_BTHK.size(3)};
}
template <class Scalar>
Head<Scalar> mutable_head_of(const at::Tensor& x_BTHK, int64_t row, int64_t head) {
  return {x_BTHK.mutable_data_ptr<Scalar>() + row * x_BTHK.stride(0) + head * x_BTHK.stride(2),
          x_BTHK.stride(1), x_BTHK.size(3)};
}

template <class Body>
void for_each_head(int64_t num_rows, int64_t num_heads, const Body& body) {
  at::parallel_for(0, num_rows * num_heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) body(task / num_heads, task % num_heads);
  });
}

// All heads of x_BTHK rotated and scaled into `target_BTHK`.
template <class Scalar>
void rotate_heads(const at::Tensor& x_BTHK, const at::Tensor& target_BTHK, const RotaryTable& table,
                  double scale, bool inverse) {
  const int64_t num_tokens = x_BTHK.size(1);
  const int64_t half = x_BTHK.size(3) / 2;
  const int64_t table_stride = table.cos.size(0) == 1 ? 0 : num_tokens * half;
  at::parallel_for(0, x_BTHK.size(0) * num_tokens, 64, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const int64_t row = n / num_tokens;
      const int64_t token = n % num_tokens;
      const int64_t angle = row * table_stride + token * half;
      for (int64_t head = 0; head < x_BTHK.size(2); ++head) {
        rotate_head(head_of<Scalar>(x_BTHK, row, head).row(token),
                    mutable_head_of<Scalar>(target_BTHK, row, head).row(token),
                    table.cos.const_data_ptr<Scalar>() + angle, table.sin.const_data_ptr<Scalar>() + angle,
                    half, static_cast<Scalar>(scale), static_cast<Scalar>(inverse ? -1 : 1));
      }
    }
  });
}

// Queries [begin, end) of a head over all their keys, block by block: a row's result so far is rescaled when
// a block brings a larger score.
template <class Scalar>
void forward_queries(int64_t begin, int64_t end, const Head<const Scalar>& q, const Head<const Scalar>& k,
                     const Head<const Scalar>& v, const Head<Scalar>& out, Scalar* log_sums,
                     Scalar* scratch) {
  const Head<Scalar> mixed{scratch, out.width, out.width};  // of query - begin
  Scalar* scores = scratch + kForwardQueries * out.width;
  Scalar maxima[kForwardQueries];
  Scalar sums[kForwardQueries];
  for (int64_t first = 0; first < end; first += kForwardKeys) {
    const int64_t last = std::min(first + kForwardKeys, end);
    const int64_t num_keys = last - first;
    multiply(q.rows(begin, end), k.rows(first, last).transpose(), 0,
             MatrixView<Scalar>{scores, end - begin, num_keys});
    for (int64_t query = begin; query < end; ++query) {
      Scalar* row = scores + (query - begin) * num_keys;
      const int64_t allowed = std::min(query + 1 - first, num_keys);  // at least 1
      Scalar& maximum = maxima[query - begin];
      Scalar& sum = sums[query - begin];
      const Scalar block_maximum = row_maximum(row, allowed);
      const Scalar new_maximum = first == 0 ? block_maximum : std::max(maximum, block_maximum);
      const Scalar block_sum = exponentiate_row(row, allowed, new_maximum);
      std::fill(row + allowed, row + num_keys, Scalar(0));
      if (first == 0) {
        sum = block_sum;
      } else {
        const Scalar factor = std::exp(maximum - new_maximum);
        if (factor != Scalar(1)) scale_row(mixed.row(query - begin), out.width, factor);
        sum = sum * factor + block_sum;
      }
      maximum = new_maximum;
    }
    multiply(MatrixView<const Scalar>{scores, end - begin, num_keys}, v.rows(first, last), first == 0 ? 0 : 1,
             mixed.rows(0, end - begin));
  }
  for (int64_t query = begin; query < end; ++query) {
    scale_into(mixed.row(query - begin), out.row(query), out.width, Scalar(1) / sums[query - begin]);
    log_sums[query] = maxima[query - begin] + std::log(sums[query - begin]);
  }
}

struct Forward {
  at::Tensor q, k, v;  // [B, T, H or G, K] by head; q and k rotated, q scaled
  at::Tensor out;      // [B, T, H, K] by token
  at::Tensor log_sum_BHT;
};

template <class Scalar>
void run_forward(const Forward& pass) {
  const int64_t num_tokens = pass.q.size(1);
  const int64_t num_heads = pass.q.size(2);
  const int64_t group = num_heads / pass.k.size(2);
  const int64_t block = std::min(kForwardKeys, num_tokens) + pass.q.size(3);
  for_each_head(pass.q.size(0), num_heads, [&](int64_t row, int64_t head) {
    const auto q = head_of<Scalar>(pass.q, row, head);
    const auto k = head_of<Scalar>(pass.k, row, head / group);
    const auto v = head_of<Scalar>(pass.v, row, head / group);
    const auto out = mutable_head_of<Scalar>(pass.out, row, head);
    Scalar* log_sums = pass.log_sum_BHT.mutable_data_ptr<Scalar>() + (row * num_heads + head) * num_tokens;
    const at::Tensor scratch = at::empty({kForwardQueries * block}, pass.q.options());
    for (int64_t begin = 0; begin < num_tokens; begin += kForwardQueries) {
      forward_queries(begin, std::min(begin + kForwardQueries, num_tokens), q, k, v, out, log_sums,
                      scratch.mutable_data_ptr<Scalar>());
    }
  });
}

// What the backward of one head reads and writes. Gradients of q, k and v are added to.
template <class Scalar>
struct HeadBackward {
  Head<const Scalar> q, k, v, out_gradient;
  Head<Scalar> q_gradient, k_gradient, v_gradient;
  const Scalar* log_sums;
  const Scalar* means;  // of each token: sum over the head of out * out_gradient
  Scalar* scores;
  Scalar* gradients;
};

// The share of keys [first, last) in the gradients of queries [begin, end) and of their own, begin >= first.
template <class Scalar>
void backward_block(int64_t first, int64_t last, int64_t begin, int64_t end, const HeadBackward<Scalar>& at) {
  const int64_t num_keys = last - first;
  const MatrixView<Scalar> scores_MJ{at.scores, end - begin, num_keys};
  const MatrixView<Scalar> gradients_MJ{at.gradients, end - begin, num_keys};
  multiply(at.q.rows(begin, end), at.k.rows(first, last).transpose(), 0, scores_MJ);
  multiply(at.out_gradient.rows(begin, end), at.v.rows(first, last).transpose(), 0, gradients_MJ);
  for (int64_t query = begin; query < end; ++query) {
    const int64_t offset = (query - begin) * num_keys;
    const int64_t allowed = std::min(query + 1 - first, num_keys);
    softmax_backward_row(at.scores + offset, at.gradients + offset, allowed, at.log_sums[query],
                         at.means[query]);
    std::fill(at.scores + offset + allowed, at.scores + offset + num_keys, Scalar(0));
    std::fill(at.gradients + offset + allowed, at.gradients + offset + num_keys, Scalar(0));
  }
  multiply(as_const(scores_MJ).transpose(), at.out_gradient.rows(begin, end), 1,
           at.v_gradient.rows(first, last));
  multiply(as_const(gradients_MJ).transpose(), at.q.rows(begin, end), 1, at.k_gradient.rows(first, last));
  multiply(as_const(gradients_MJ), at.k.rows(first, last), 1, at.q_gradient.rows(begin, end));
}

struct Gradients {
  at::Tensor q, k, v;  // [B, T, H or G, K] by head
};

template <class Scalar>
void run_backward(const Forward& pass, const at::Tensor& out_gradient_BTHK, const Gradients& gradients) {
  const int64_t num_tokens = pass.q.size(1);
  const int64_t num_heads = pass.q.size(2);
  const int64_t width = pass.q.size(3);
  const int64_t group = num_heads / pass.k.size(2);
  const int64_t block = std::min(kBackwardQueries, num_tokens) * kBackwardKeys;
  // A task is a key/value head: only one thread may add to its gradients.
  for_each_head(pass.q.size(0), pass.k.size(2), [&](int64_t row, int64_t kv_head) {
    const at::Tensor scratch = at::empty({2 * block + (1 + width) * num_tokens}, pass.q.options());
    auto* scores = scratch.mutable_data_ptr<Scalar>();
    Scalar* means = scores + 2 * block;
    const Head<Scalar> out_gradient{means + num_tokens, width, width};
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      const HeadBackward<Scalar> at{
          head_of<Scalar>(pass.q, row, head),
          head_of<Scalar>(pass.k, row, kv_head),
          head_of<Scalar>(pass.v, row, kv_head),
          {out_gradient.data, width, width},
          mutable_head_of<Scalar>(gradients.q, row, head),
          mutable_head_of<Scalar>(gradients.k, row, kv_head),
          mutable_head_of<Scalar>(gradients.v, row, kv_head),
          pass.log_sum_BHT.const_data_ptr<Scalar>() + (row * num_heads + head) * num_tokens,
          means,
          scores,
          scores + block};
      const auto out = head_of<Scalar>(pass.out, row, head);
      const auto given_gradient = head_of<Scalar>(out_gradient_BTHK, row, head);
      for (int64_t token = 0; token < num_tokens; ++token) {
        std::copy_n(given_gradient.row(token), width, out_gradient.row(token));
        means[token] = dot_product(out.row(token), out_gradient.row(token), width);
      }
      for (int64_t first = 0; first < num_tokens; first += kBackwardKeys) {
        const int64_t last = std::min(first + kBackwardKeys, num_tokens);
        for (int64_t begin = first; begin < num_tokens; begin += kBackwardQueries) {
          backward_block(first, last, begin, std::min(begin + kBackwardQueries, num_tokens), at);
        }
      }
    }
  });
}

double query_scale(const at::Tensor& q_BTHK) { return 1.0 / std::sqrt(static_cast<double>(q_BTHK.size(3))); }

class CausalAttentionFunction : public torch::autograd::Function<CausalAttentionFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const RotaryTable& table, const HeadCounts& heads) {
    RECORD_USER_SCOPE("smoe::attention forward");
    const at::Tensor q_BTHK = split_heads(q, heads.head_dim);
    const at::Tensor k_BTGK = split_heads(k, heads.head_dim);
    const at::Tensor out = at::empty(q.sizes(), q.options());
    const Forward pass{head_major(q_BTHK), head_major(k_BTGK), head_major(k_BTGK),
                       split_heads(out, heads.head_dim),
                       at::empty({q.size(0), heads.num_heads, q.size(1)}, q.options())};
    const RotaryTable angles{table.cos.contiguous(), table.sin.contiguous()};
    AT_DISPATCH_FLOATING_TYPES(q.scalar_type(), "causal_attention", [&] {
      rotate_heads<scalar_t>(q_BTHK, pass.q, angles, query_scale(q_BTHK), false);
      rotate_heads<scalar_t>(k_BTGK, pass.k, angles, 1.0, false);
      pass.v.copy_(split_heads(v, heads.head_dim));
      run_forward<scalar_t>(pass);
    });
    context->save_for_backward({pass.q, pass.k, pass.v, pass.out, pass.log_sum_BHT, angles.cos, angles.sin});
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& out_gradients) {
    RECORD_USER_SCOPE("smoe::attention backward");
    SMOE_ASSERT(!at::GradMode::is_enabled());  // there is no second derivative
    const variable_list saved = context->get_saved_variables();
    const Forward pass{saved[0], saved[1], saved[2], saved[3], saved[4]};
    const RotaryTable angles{saved[5], saved[6]};
    const Gradients gradients{head_major(pass.q).zero_(), head_major(pass.k).zero_(),
                              head_major(pass.v).zero_()};
    const at::Tensor q_BTHK = at::empty(pass.q.sizes(), pass.q.options());
    const at::Tensor k_BTGK = at::empty(pass.k.sizes(), pass.k.options());
    AT_DISPATCH_FLOATING_TYPES(pass.q.scalar_type(), "causal_attention_backward", [&] {
      run_backward<scalar_t>(pass, split_heads(out_gradients[0], pass.q.size(3)), gradients);
      rotate_heads<scalar_t>(gradients.q, q_BTHK, angles, query_scale(q_BTHK), true);
      rotate_heads<scalar_t>(gradients.k, k_BTGK, angles, 1.0, true);
    });
    return {q_BTHK.flatten(2), k_BTGK.flatten(2), gradients.v.flatten(2), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const RotaryTable& table, const HeadCounts& heads) {
  SMOE_ASSERT(q.dim() == 3 && q.is_cpu() && q.size(1) > 0 && q.size(2) == heads.num_heads * heads.head_dim);
  SMOE_ASSERT(k.sizes() == v.sizes() && k.size(1) == q.size(1));
  SMOE_ASSERT(k.size(2) == heads.num_kv_heads * heads.head_dim && table.cos.size(-2) == q.size(1));
  return CausalAttentionFunction::apply(q, k, v, table, heads);
}

}  // namespace smoe
