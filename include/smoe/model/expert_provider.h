// Where inference gets the weights of routed experts from: the interface between the MoE layers and whatever
// holds the experts (a store that reads them from disk). Says nothing about how they are stored or fetched.
//
// Shape legend: D model width, h expert width.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "smoe/core/config_visitors.h"
#include "smoe/core/error.h"

namespace smoe {

// How the values of an expert are stored. All of them stand for exact float32 values.
enum class ExpertEncoding {
  kFloat32,
  kBfloat16,
  kInt8,  // value = scale of its row * int8, the product rounded to float32
};
template <>
struct EnumNames<ExpertEncoding> {
  static constexpr std::array values = {enum_name(ExpertEncoding::kFloat32, "fp32"),
                                        enum_name(ExpertEncoding::kBfloat16, "bf16"),
                                        enum_name(ExpertEncoding::kInt8, "int8")};
};

struct ExpertShape {
  int64_t dim = 0;
  int64_t expert_dim = 0;

  friend bool operator==(const ExpertShape&, const ExpertShape&) = default;
};

// The three row-major matrices of one expert where they lie in memory, owned by someone else.
struct ExpertView {
  ExpertEncoding encoding = ExpertEncoding::kFloat32;
  const void* gate_hD = nullptr;
  const void* up_hD = nullptr;
  const void* down_Dh = nullptr;
  const float* gate_scale_h = nullptr;  // int8 only: one scale a row
  const float* up_scale_h = nullptr;
  const float* down_scale_D = nullptr;
};

// The experts that one forward pass uses.
struct ExpertDemand {
  // Ascending, for each MoE layer in order. Empty where the choice is made layer by layer (vanilla MoE).
  std::vector<std::vector<int64_t>> experts_of_layer;
  bool is_new_choice = false;  // at least one segment has chosen its experts in this pass
};

// An expert that could not be read. The forward pass has changed nothing that a later one would see, so that
// it may be run again without the rows that need the expert.
class ExpertReadError : public DataError {
 public:
  ExpertReadError(const std::string& message, int64_t expert) : DataError(message), expert_(expert) {}
  ExpertReadError(const ExpertReadError& error, std::vector<int64_t> rows)
      : ExpertReadError(error.what(), error.expert_) {
    rows_ = std::move(rows);
  }
  int64_t expert() const { return expert_; }
  // Rows of the batch that need it, ascending: known once the error comes out of Model::forward.
  const std::vector<int64_t>& rows() const { return rows_; }

 private:
  int64_t expert_;
  std::vector<int64_t> rows_;
};

// The experts of one forward pass on their way.
class ExpertDelivery {
 public:
  virtual ~ExpertDelivery() = default;
  // The views of `experts` (ascending; those of the demand, if it named any) of MoE layer `layer`, in their
  // order. Waits until they are in memory. Layers are asked for in ascending order: once each, or, where a
  // layer has more experts than the provider's most_experts(), part by part in ascending order, all parts but
  // the last of that size. Views are valid until the next call and no longer than the delivery. Throws
  // ExpertReadError if an expert cannot be read.
  virtual std::vector<ExpertView> wait(int64_t layer, const std::vector<int64_t>& experts) = 0;
};

// Safe to share between threads.
class ExpertProvider {
 public:
  virtual ~ExpertProvider() = default;
  // Called as soon as the demand of a forward pass is known. The provider must outlive the delivery.
  virtual std::unique_ptr<ExpertDelivery> begin(const ExpertDemand& demand) = 0;
  // Experts of a layer that can be in memory together.
  virtual int64_t most_experts() const { return std::numeric_limits<int64_t>::max(); }
};

}  // namespace smoe
