// AdamW with decoupled weight decay and mup-simple, on LibTorch's fused kernel.
//
// The update of a parameter w with the schedule's multiplier m in [0, 1]:
//
//   w  <-  w - m * ( scale * peak_learning_rate * adam(g)  +  weight_decay * w )
//
// The decay is multiplied by the schedule but neither by the learning rate nor by the scale (Loshchilov and
// Hutter 2019, as AXLearn implements it). mup-simple (Wortsman et al. 2023) sets scale = min(base / D, 1) for
// matrices; routers have a scale of their own, everything else has 1. Initialisation and logits are
// unchanged.
//
// Parameters in bfloat16 have float32 masters, which are what is updated: most updates are smaller than a
// rounding of bfloat16. The parameters are copies of them, rounded to the nearest. Gradients and moments are
// float32.
//
// With several processes each one updates the slices that data_parallel.h gives it.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "smoe/model/parameters.h"
#include "smoe/model/safetensors.h"
#include "smoe/train/data_parallel.h"
#include "smoe/train/state_slice.h"
#include "smoe/train/train_config.h"

namespace smoe {

// The factor on the learning rate of parameters of `kind` in a model of width `dim`.
double learning_rate_scale(const OptimizerConfig& config, ParameterKind kind, int64_t dim);

class Optimizer {
 public:
  // Of a process on its own: trains `parameters` (buffers are left alone) and gives each a gradient of zeros,
  // in float32 at least, which later backward passes add to. `dim` is the model's width D.
  Optimizer(const OptimizerConfig& config, const std::vector<NamedParameter>& parameters, int64_t dim);
  // Trains the slices of `parallel`.
  Optimizer(const OptimizerConfig& config, std::shared_ptr<DataParallel> parallel, int64_t dim);

  // Makes the masters equal to the parameters. To be called once the parameters have their first values.
  void take_weights();

  void zero_gradients();

  // L2 norm over all gradients of all processes, computed in float64 from the norms of the tensors.
  double gradient_norm() const;
  // Multiplies all gradients by clip_norm / norm if `norm` is larger than clip_norm (0: never).
  void clip_gradients(double norm);
  // Name of the first parameter whose gradient has a NaN or an infinity, among the slices of this process;
  // empty if there is none.
  std::string first_non_finite_gradient() const;

  // One update with the schedule's multiplier.
  void step(double multiplier);

  // Updates made so far.
  int64_t num_steps() const { return num_steps_; }

  // The moments and masters that this process holds: of whole tensors without sharding. Values are handles:
  // what is copied into them is the new state.
  std::vector<StateSlice> state_slices() const;
  // False where another shard group holds the same slices and saves them.
  bool owns_slices() const { return parallel_->owns_slices(); }
  // After new values were copied into the slices: the number of updates that they come from. Parameters that
  // have masters become copies of them.
  void restore(int64_t num_steps);

  // NAME.exp_avg and NAME.exp_avg_sq of every trained parameter, NAME.master where there is one, and `step`,
  // as handles (not copies). Of a process on its own only.
  TensorList state() const;
  // Copies a saved state in. Throws CheckpointError listing missing, surplus and misshapen tensors.
  void load_state(const SafetensorsFile& file);

 private:
  // Slices that share a learning rate and a decay, in the layout of the fused kernel.
  struct Group {
    double scale = 1.0;
    bool decays = true;
    std::vector<ParameterSlice> slices;
    std::vector<at::Tensor> first_moments, second_moments;
    std::vector<at::Tensor> weights;  // what is updated: the values of a slice themselves, or their master

    bool has_master(size_t index) const {
      return weights[index].scalar_type() != slices[index].values.scalar_type();
    }
  };

  Group& group_of(double scale, bool decays);
  void update_group(Group& group, double multiplier);
  void round_masters(Group& group);

  OptimizerConfig config_;
  std::shared_ptr<DataParallel> parallel_;
  std::vector<Group> groups_;
  at::Tensor step_;  // float32 scalar, as the fused kernel wants it: exact up to 2^24 updates
  int64_t num_steps_ = 0;
};

}  // namespace smoe
