// Shape legend: D model width, F hidden width of the dense feed-forward, E routed experts, h expert width,
// s shared experts.
#include "smoe/interchange/upcycle.h"

#include <ATen/CPUGeneratorImpl.h>

#include "conversion.h"
#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/core/json.h"
#include "smoe/core/random.h"
#include "smoe/model/checkpoint_reader.h"
#include "smoe/model/initialization.h"
#include "smoe/model/model.h"
#include "smoe/model/weight_files.h"

namespace smoe {
namespace {

namespace fs = std::filesystem;

// Collects the keys in which dense model and target contradict each other.
class Misfits {
 public:
  template <class Value>
  void need_equal(const char* key, const Value& dense, const Value& target) {
    if (dense != target) add(fmt::format("model.{} is {}, but {} in the dense model", key, target, dense));
  }
  void need(bool fits, const std::string& text) {
    if (!fits) add(text);
  }
  void throw_if_any(const fs::path& dense) const {
    SMOE_CHECK(CheckpointError, text_.empty(), "{}: the dense model cannot become the model of the config:{}",
               dense.string(), text_);
  }

 private:
  void add(const std::string& text) { text_ += "\n  " + text; }
  std::string text_;
};

void check_skeleton(const ModelConfig& dense, const ModelConfig& target, Misfits& misfits) {
  misfits.need(dense.architecture == Architecture::kDense,
               fmt::format("the checkpoint is a {}; upcycling starts from a dense model",
                           enum_to_name(dense.architecture)));
  misfits.need(target.architecture != Architecture::kDense,
               "model.architecture is dense; allowed are stepped_moe and vanilla_moe");
  misfits.need_equal("vocab_size", dense.vocab_size, target.vocab_size);
  misfits.need_equal("dim", dense.dim, target.dim);
  misfits.need_equal("num_heads", dense.num_heads, target.num_heads);
  misfits.need_equal("num_kv_heads", dense.num_kv_heads, target.num_kv_heads);
  misfits.need_equal("head_dim", dense.head_dim, target.head_dim);
  misfits.need_equal("tied_embeddings", dense.tied_embeddings, target.tied_embeddings);
  misfits.need_equal("qk_norm", dense.qk_norm, target.qk_norm);
  misfits.need_equal("rope_theta", dense.rope_theta, target.rope_theta);
  misfits.need_equal("norm_eps", dense.norm_eps, target.norm_eps);
  misfits.need(dense.num_layers() == target.num_layers(),
               fmt::format("model.num_dense_layers + model.num_moe_layers is {}, but the dense model has {} "
                           "layers",
                           target.num_layers(), dense.num_layers()));
  if (target.num_dense_layers > 0) {
    misfits.need_equal("dense_ffn_dim", dense.dense_ffn_dim, target.dense_ffn_dim);
  }
}

void check_experts(const ModelConfig& dense, const ModelConfig& target, const UpcycleOptions& options,
                   Misfits& misfits) {
  const bool vanilla = target.architecture == Architecture::kVanillaMoe;
  if (options.method == UpcycleMethod::kSplit) {
    const int64_t units = (target.num_shared_experts + target.num_experts) * target.expert_dim;
    misfits.need(units == dense.dense_ffn_dim,
                 fmt::format("(model.num_shared_experts + model.num_experts) * model.expert_dim is {}, but "
                             "the dense feed-forward has {} units to split",
                             units, dense.dense_ffn_dim));
    misfits.need(!vanilla,
                 "a vanilla_moe weights its experts with less than 1, so the parts of a split would not add "
                 "up; use method copy");
    misfits.need(options.noise == 0.0, "noise is for method copy; the parts of a split differ already");
    return;
  }
  misfits.need(target.expert_dim == dense.dense_ffn_dim,
               fmt::format("model.expert_dim is {}, but a copy of the dense feed-forward has {} units",
                           target.expert_dim, dense.dense_ffn_dim));
  misfits.need(!vanilla || target.token_router.normalize_weights,
               "model.token_router.normalize_weights is false: the weights of copies do not add up to 1");
  misfits.need(options.order == UnitOrder::kIndex, "an order of units is for method split");
}

// How many copies are added up where the result is to be that of one.
double active_copies(const ModelConfig& target, const UpcycleOptions& options) {
  const auto shared = static_cast<double>(target.num_shared_experts);
  if (target.architecture == Architecture::kVanillaMoe) return shared + 1.0;
  const size_t index = options.budget.empty()
                           ? target.budgets.size() - 1
                           : static_cast<size_t>(find_budget(target.budgets, options.budget));
  return shared + static_cast<double>(target.budgets[index].experts_per_layer);
}

// Position of every hidden unit in the sequence shared expert, expert 0, expert 1, ...
at::Tensor unit_sequence_F(const WeightFiles& weights, const std::string& prefix, const ModelConfig& target) {
  const auto norm_F = [&](const char* name, int64_t dim) {
    return weights.tensor(prefix + name).to(at::kFloat).square().sum(dim).sqrt();
  };
  const at::Tensor importance_F =
      norm_F("gate_proj.weight", 1) * norm_F("up_proj.weight", 1) * norm_F("down_proj.weight", 0);
  const at::Tensor order_F = at::argsort(importance_F, /*stable=*/true, /*dim=*/0, /*descending=*/true);
  const int64_t shared = target.shared_dim();
  const at::Tensor routed = order_F.slice(0, shared).view({target.expert_dim, target.num_experts});
  return at::cat({order_F.slice(0, 0, shared), routed.t().reshape({-1})});
}

// Makes the tensors of one feed-forward. `rows` [F, D] are gate or up, or down transposed, so that hidden
// units come first in all of them.
class ExpertMaker {
 public:
  ExpertMaker(const ModelConfig& target, const UpcycleOptions& options)
      : target_(target), options_(options), scale_(1.0 / active_copies(target, options)) {}

  at::Tensor shared(const at::Tensor& rows_FD, bool is_down) const {
    if (options_.method == UpcycleMethod::kSplit) return rows_FD.slice(0, 0, target_.shared_dim());
    return scaled(rows_FD, is_down).repeat({target_.num_shared_experts, 1});
  }
  at::Tensor routed(const at::Tensor& rows_FD, bool is_down, const std::string& name) const {
    const int64_t dim = rows_FD.size(1);
    if (options_.method == UpcycleMethod::kSplit) {
      return rows_FD.slice(0, target_.shared_dim()).view({target_.num_experts, target_.expert_dim, dim});
    }
    const at::Tensor copies_EhD =
        scaled(rows_FD, is_down).unsqueeze(0).expand({target_.num_experts, target_.expert_dim, dim});
    return options_.noise > 0.0 ? with_noise(copies_EhD, name) : copies_EhD;
  }

 private:
  at::Tensor scaled(const at::Tensor& rows_FD, bool is_down) const {
    return is_down ? rows_FD.to(at::kFloat) * scale_ : rows_FD;
  }
  at::Tensor with_noise(const at::Tensor& copies_EhD, const std::string& name) const {
    // Only a function of seed and name, like every other initial value.
    const uint64_t hash = std::stoull(sha256_of_bytes(name).substr(0, 15), nullptr, 16);
    const at::Generator generator = at::detail::createCPUGenerator(mix_seeds(options_.seed, hash));
    const at::Tensor values = copies_EhD.to(at::kFloat);
    return values + at::randn(values.sizes(), generator, values.options()) * values.std() * options_.noise;
  }

  const ModelConfig& target_;
  const UpcycleOptions& options_;
  double scale_;
};

// Values that the dense model does not have.
at::Tensor new_values(const NamedParameter& parameter, const ModelConfig& target, uint64_t seed) {
  if (parameter.name == "size_embedding.weight") return at::zeros(parameter.tensor.sizes());
  std::vector<NamedParameter> one = {
      {parameter.name, at::empty(parameter.tensor.sizes(), at::kFloat), parameter.kind}};
  initialize_parameters(one, target, seed);
  return one.front().tensor;
}

// layers.3.routed_experts.gate_proj.weight is made of layers.3.feed_forward.gate_proj.weight.
struct ExpertName {
  std::string prefix;      // "layers.3.feed_forward."
  std::string projection;  // "gate_proj.weight"
  bool is_shared = false;
};
std::optional<ExpertName> parse_expert_name(const std::string& name) {
  for (const auto& [part, is_shared] :
       {std::pair<std::string, bool>(".shared_expert.", true), {".routed_experts.", false}}) {
    const size_t begin = name.find(part);
    if (begin == std::string::npos) continue;
    return ExpertName{name.substr(0, begin) + ".feed_forward.", name.substr(begin + part.size()), is_shared};
  }
  return std::nullopt;
}

at::Tensor make_expert_tensor(const NamedParameter& parameter, const ExpertName& name,
                              const WeightFiles& weights, const ModelConfig& target,
                              const UpcycleOptions& options) {
  const bool is_down = name.projection.starts_with("down");
  at::Tensor rows_FD = weights.tensor(name.prefix + name.projection);
  if (is_down) rows_FD = rows_FD.t();
  if (options.method == UpcycleMethod::kSplit && options.order == UnitOrder::kNorm) {
    rows_FD = rows_FD.index_select(0, unit_sequence_F(weights, name.prefix, target));
  }
  const ExpertMaker maker(target, options);
  const at::Tensor made = name.is_shared ? maker.shared(rows_FD.contiguous(), is_down)
                                         : maker.routed(rows_FD.contiguous(), is_down, parameter.name);
  return is_down ? made.transpose(-1, -2) : made;
}

DeferredTensor upcycled_tensor(const NamedParameter& parameter, const WeightFiles& weights,
                               const ModelConfig& target, const UpcycleOptions& options) {
  const std::vector<int64_t> sizes = parameter.tensor.sizes().vec();
  const at::ScalarType dtype = weights.tensor("token_embedding.weight").scalar_type();
  if (const auto name = parse_expert_name(parameter.name)) {
    return converted_tensor(parameter.name, sizes, dtype, [&weights, &target, &options, parameter, name] {
      return make_expert_tensor(parameter, *name, weights, target, options);
    });
  }
  if (weights.contains(parameter.name)) {
    const at::Tensor stored = weights.tensor(parameter.name);
    return converted_tensor(parameter.name, sizes, dtype, [stored] { return stored; });
  }
  return converted_tensor(parameter.name, sizes, dtype, [&target, &options, parameter] {
    return new_values(parameter, target, options.seed);
  });
}

void copy_small_files(const fs::path& dense, const fs::path& folder) {
  for (const char* name :
       {"tokenizer.model", "tokenizer.json", "special_tokens_map.json", "chat_template.yaml"}) {
    if (fs::is_regular_file(dense / name)) fs::copy_file(dense / name, folder / name);
  }
}

}  // namespace

InterchangeSummary upcycle_checkpoint(const fs::path& path, const fs::path& out, const ModelConfig& target,
                                      const UpcycleOptions& options) {
  const fs::path dense = resolve_checkpoint(path);
  verify_checkpoint(dense);
  const ModelConfig config = read_checkpoint_model_config(dense);
  Misfits misfits;
  check_skeleton(config, target, misfits);
  if (config.architecture == Architecture::kDense && target.architecture != Architecture::kDense) {
    check_experts(config, target, options, misfits);
  }
  misfits.throw_if_any(dense);
  const WeightFiles weights(dense);
  check_weights_fit(weights, Model(config, at::Device(at::kMeta)));
  const Model model(target, at::Device(at::kMeta));
  std::vector<DeferredTensor> tensors;
  for (const NamedParameter& parameter : model.parameters()) {
    tensors.push_back(upcycled_tensor(parameter, weights, target, options));
  }
  AtomicFolder folder(out);
  const fs::path& temporary = folder.temporary_path();
  write_weight_files(temporary, tensors, 0, {{"upcycled", std::string(enum_to_name(options.method))}});
  write_file_atomically(temporary / "config.yaml",
                        converted_config(target, checkpoint_sequence_length(dense)));
  copy_small_files(dense, temporary);
  InterchangeSummary summary = summarize(temporary, tensors);
  write_checksums(temporary);
  folder.commit();
  return summary;
}

}  // namespace smoe
