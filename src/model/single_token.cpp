#include "single_token.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "norm_kernels.h"
#include "smoe/core/error.h"
#include "softmax_kernels.h"
#include "swiglu_kernels.h"

namespace smoe {
namespace {

// Weights of one item: enough to hide the cost of claiming it, few enough for all threads to end together.
constexpr int64_t kItemBytes = 64 << 10;
constexpr int64_t kRowStep = 4;
constexpr int64_t kMostNarrowRows = 32;  // of a part that is read from many matrices

int64_t rows_an_item(int64_t row_bytes) {
  return std::max<int64_t>(kRowStep, kItemBytes / std::max<int64_t>(row_bytes, 1) / kRowStep * kRowStep);
}

int64_t row_bytes(const EncodedMatrix& matrix) {
  return matrix.columns * encoded_value_bytes(matrix.encoding);
}

const float* floats(const at::Tensor& tensor) { return tensor.const_data_ptr<float>(); }

}  // namespace

SingleTokenPass::SingleTokenPass(const SingleTokenModel& model, KvCache& cache, const at::Tensor& h_D,
                                 ChooseExperts choose_experts)
    : model_(model), cache_(cache), choose_experts_(std::move(choose_experts)) {
  const ModelConfig& config = model.config;
  SMOE_ASSERT(cache.num_rows() == 1 && cache.prefix() == nullptr && cache.lengths()[0] > 0 &&
              cache.lengths()[0] < cache.capacity());
  h_.assign(floats(h_D), floats(h_D) + config.dim);
  normed_.resize(static_cast<size_t>(config.dim));
  qkv_.resize(static_cast<size_t>((config.num_heads + 2 * config.num_kv_heads) * config.head_dim));
  mixed_.resize(static_cast<size_t>(config.num_heads * config.head_dim));
  const RotaryTable table =
      rotary_table(cache.next_positions(1), config.head_dim, config.rope_theta, at::kFloat);
  cos_.assign(floats(table.cos), floats(table.cos) + config.head_dim / 2);
  sin_.assign(floats(table.sin), floats(table.sin) + config.head_dim / 2);
}

void SingleTokenPass::run(int64_t begin, int64_t end) {
  if (begin == end && end < std::ssize(model_.layers)) return;
  StageList stages;
  const auto num_layers = std::ssize(model_.layers);
  norm(begin < num_layers ? model_.layers[static_cast<size_t>(begin)].attention_norm : model_.final_norm,
       normed_);
  for (int64_t layer = begin; layer < end; ++layer) {
    add_attention(stages, layer);
    const bool is_last = layer + 1 == num_layers;
    const at::Tensor& next =
        is_last ? model_.final_norm : model_.layers[static_cast<size_t>(layer + 1)].attention_norm;
    add_feed_forward(stages, layer, [this, &next] { norm(next, normed_); });
  }
  if (end == num_layers) add_head(stages);
  stages.run();
}

void SingleTokenPass::norm(const at::Tensor& gain, std::vector<float>& normed) const {
  norm_forward_row(h_.data(), nullptr, floats(gain), nullptr, normed.data(), model_.config.dim,
                   static_cast<float>(model_.config.norm_eps));
}

namespace {

template <class Block>
std::vector<Block> cut(const std::vector<EncodedMatrix>& matrices) {
  std::vector<Block> blocks;
  for (size_t unit = 0; unit < matrices.size(); ++unit) {
    const int64_t rows = matrices[unit].rows;
    const int64_t step = rows_an_item(row_bytes(matrices[unit]));
    for (int64_t begin = 0; begin < rows; begin += step) {
      blocks.push_back({static_cast<int64_t>(unit), begin, std::min(step, rows - begin)});
    }
  }
  return blocks;
}

}  // namespace

// Item `item` of the products of all `matrices` with `input`; their results stand one after the other.
void SingleTokenPass::project(const std::vector<EncodedMatrix>& matrices, const std::vector<Block>& blocks,
                              int64_t item, const float* input, float* output) {
  const Block& block = blocks[static_cast<size_t>(item)];
  for (int64_t unit = 0; unit < block.unit; ++unit) output += matrices[static_cast<size_t>(unit)].rows;
  multiply_vector(rows_of(matrices[static_cast<size_t>(block.unit)], block.begin, block.count), input,
                  output + block.begin, false);
}

void SingleTokenPass::add_attention(StageList& stages, int64_t layer) {
  const AttentionWeights& weights = model_.layers[static_cast<size_t>(layer)].attention;
  const auto matrices = std::make_shared<std::vector<EncodedMatrix>>();
  for (const at::Tensor& weight : {weights.q_proj, weights.k_proj, weights.v_proj}) {
    matrices->push_back(model_.weights.matrix(weight));
  }
  const auto blocks = std::make_shared<std::vector<Block>>(cut<Block>(*matrices));
  stages.add({std::ssize(*blocks), [this, matrices, blocks](int64_t item) {
                project(*matrices, *blocks, item, normed_.data(), qkv_.data());
              }});
  stages.add({model_.config.num_kv_heads, [this, layer](int64_t group) { attend_group(layer, group); }});
}

// The query heads that share key/value head `group`.
void SingleTokenPass::attend_group(int64_t layer, int64_t group) {
  const ModelConfig& config = model_.config;
  const AttentionWeights& weights = model_.layers[static_cast<size_t>(layer)].attention;
  const int64_t width = config.head_dim;
  const int64_t length = cache_.lengths()[0];
  const auto [keys_1GTK, values_1GTK] = cache_.stored(layer);
  float* keys = keys_1GTK.mutable_data_ptr<float>() + group * keys_1GTK.stride(1);
  float* values = values_1GTK.mutable_data_ptr<float>() + group * values_1GTK.stride(1);
  const auto epsilon = static_cast<float>(config.norm_eps);
  const auto turn = [&](const float* source, const at::Tensor& gain, float scale, float* target) {
    std::vector<float> normed(source, source + width);
    if (gain.defined()) {
      norm_forward_row(source, nullptr, floats(gain), nullptr, normed.data(), width, epsilon);
    }
    rotate_head(normed.data(), target, cos_.data(), sin_.data(), width / 2, scale, 1.0F);
  };
  const float* key = qkv_.data() + (config.num_heads + group) * width;
  turn(key, weights.k_norm, 1.0F, keys + length * width);
  std::memcpy(values + length * width, key + config.num_kv_heads * width,
              static_cast<size_t>(width) * sizeof(float));

  const int64_t group_size = config.num_heads / config.num_kv_heads;
  std::vector<float> query(static_cast<size_t>(width)), scores(static_cast<size_t>(length + 1));
  for (int64_t head = group * group_size; head < (group + 1) * group_size; ++head) {
    turn(qkv_.data() + head * width, weights.q_norm, 1.0F / std::sqrt(static_cast<float>(width)),
         query.data());
    multiply_vector({ExpertEncoding::kFloat32, keys, nullptr, length + 1, width}, query.data(), scores.data(),
                    false);
    const float sum = exponentiate_row(scores.data(), length + 1, row_maximum(scores.data(), length + 1));
    float* mixed = mixed_.data() + head * width;
    sum_weighted_rows(values, scores.data(), length + 1, width, mixed);
    scale_row(mixed, width, 1.0F / sum);
  }
}

SingleTokenPass::Unit SingleTokenPass::unit_of(const SwigluWeights& weights) const {
  return {model_.weights.matrix(weights.gate_FD), model_.weights.matrix(weights.up_FD),
          model_.weights.matrix(weights.down_DF)};
}

// After attention: what the layer computes next, and in which pieces.
void SingleTokenPass::start_feed_forward(StageList& stages, int64_t layer, int64_t wide_stage) {
  const ModelConfig& config = model_.config;
  const DecoderLayer& weights = model_.layers[static_cast<size_t>(layer)];
  norm(weights.ffn_norm, normed_);
  units_.clear();
  if (weights.feed_forward.gate_FD.defined()) units_.push_back(unit_of(weights.feed_forward));
  if (weights.shared_expert.gate_FD.defined()) units_.push_back(unit_of(weights.shared_expert));
  if (layer >= config.num_dense_layers) {
    const TokenExperts experts = choose_experts_(layer - config.num_dense_layers, normed_);
    const ExpertShape shape{config.dim, config.expert_dim};
    for (size_t i = 0; i < experts.views.size(); ++i) {
      const ExpertView& view = experts.views[i];
      units_.push_back(
          {gate_matrix(view, shape), up_matrix(view, shape), down_matrix(view, shape), experts.weights[i]});
    }
  }
  int64_t width = 0, down_row_bytes = 0;
  std::vector<EncodedMatrix> gates;
  for (Unit& unit : units_) {
    unit.offset = width;
    width += unit.gate.rows;
    down_row_bytes += row_bytes(unit.down);
    gates.push_back(unit.gate);
  }
  gate_.resize(static_cast<size_t>(width));
  up_.resize(static_cast<size_t>(width));
  wide_blocks_ = cut<Block>(gates);
  narrow_blocks_.clear();
  // Each unit has a piece of an item: pieces of several rows are longer to read in one go.
  const int64_t even_rows = config.dim / (4 * at::get_num_threads()) / kRowStep * kRowStep;
  const int64_t step =
      std::max(rows_an_item(down_row_bytes), std::clamp<int64_t>(even_rows, kRowStep, kMostNarrowRows));
  for (int64_t begin = 0; begin < config.dim; begin += step) {
    narrow_blocks_.push_back({0, begin, std::min(step, config.dim - begin)});
  }
  stages.set_num_items(wide_stage, std::ssize(wide_blocks_));
  stages.set_num_items(wide_stage + 1, std::ssize(narrow_blocks_));
}

// Of the hidden states of a layer: gate and up are reduced to them in place.
void SingleTokenPass::widen(int64_t item) {
  const Block& block = wide_blocks_[static_cast<size_t>(item)];
  const Unit& unit = units_[static_cast<size_t>(block.unit)];
  float* gate = gate_.data() + unit.offset + block.begin;
  float* up = up_.data() + unit.offset + block.begin;
  multiply_vector(rows_of(unit.gate, block.begin, block.count), normed_.data(), gate, false);
  multiply_vector(rows_of(unit.up, block.begin, block.count), normed_.data(), up, false);
  swiglu_forward(gate, up, block.count, unit.weight);
}

// Rows of all units' results, added to the residual stream in the order of the units.
void SingleTokenPass::narrow(int64_t item) {
  const Block& block = narrow_blocks_[static_cast<size_t>(item)];
  std::vector<MatrixVector> terms;
  terms.reserve(units_.size());
  for (const Unit& unit : units_) {
    terms.push_back({rows_of(unit.down, block.begin, block.count), gate_.data() + unit.offset});
  }
  add_products(terms.data(), std::ssize(terms), h_.data() + block.begin);
}

void SingleTokenPass::add_feed_forward(StageList& stages, int64_t layer, std::function<void()> after) {
  const EncodedMatrix out = model_.weights.matrix(model_.layers[static_cast<size_t>(layer)].attention.o_proj);
  const auto blocks = std::make_shared<std::vector<Block>>(cut<Block>({out}));
  const int64_t wide_stage = stages.size() + 1;
  stages.add({std::ssize(*blocks),
              [this, out, blocks](int64_t item) {
                const Block& block = (*blocks)[static_cast<size_t>(item)];
                multiply_vector(rows_of(out, block.begin, block.count), mixed_.data(),
                                h_.data() + block.begin, true);
              },
              [this, &stages, layer, wide_stage] { start_feed_forward(stages, layer, wide_stage); }});
  stages.add({0, [this](int64_t item) { widen(item); }});
  stages.add({0, [this](int64_t item) { narrow(item); }, std::move(after)});
}

void SingleTokenPass::add_head(StageList& stages) {
  const EncodedMatrix head = model_.weights.matrix(model_.output_VD);
  logits_.resize(static_cast<size_t>(head.rows));
  const auto blocks = std::make_shared<std::vector<Block>>(cut<Block>({head}));
  stages.add({std::ssize(*blocks), [this, head, blocks](int64_t item) {
                const Block& block = (*blocks)[static_cast<size_t>(item)];
                multiply_vector(rows_of(head, block.begin, block.count), normed_.data(),
                                logits_.data() + block.begin, false);
              }});
}

}  // namespace smoe
