// The saved state of an optimizer, whichever processes wrote it: one file of whole tensors, or one file a
// process with the pieces it held (checkpoint_parts.h). Any range of any tensor can be read, so that a run
// goes on with another number of processes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "smoe/model/safetensors.h"
#include "smoe/train/optimizer.h"
#include "smoe/train/state_slice.h"

namespace smoe {

class OptimizerStateReader {
 public:
  // Maps the optimizer files of a checkpoint. Throws CheckpointError if there are none, one is damaged, or
  // they contradict each other.
  explicit OptimizerStateReader(const std::filesystem::path& checkpoint);

  std::vector<std::string> names() const;
  // Of the whole tensor. Throws CheckpointError if it is absent.
  const std::vector<int64_t>& shape(const std::string& name) const;
  int64_t num_updates() const { return num_updates_; }

  // Copies the range of `slice` into its values. Throws CheckpointError if the saved pieces leave a gap.
  void read(const StateSlice& slice) const;

  // Throws CheckpointError unless there are both moments of every trained parameter, and its master if it is
  // of a half type, whole and in its shape.
  void check_fits(const std::vector<NamedParameter>& parameters) const;

  // Restores what `optimizer` holds. Throws CheckpointError listing missing, surplus and misshapen tensors.
  void restore(Optimizer& optimizer) const;

 private:
  struct Piece {
    int64_t begin = 0;
    int64_t end = 0;
    at::Tensor values;  // flat view of the mapped file
    std::filesystem::path path;
  };
  struct SavedTensor {
    std::vector<int64_t> shape;
    std::vector<Piece> pieces;
  };

  void add_whole(const SafetensorsFile& file);
  void add_pieces(const SafetensorsFile& file);
  void add(const std::string& name, std::vector<int64_t> shape, Piece piece);
  std::vector<Piece> pieces_in_order(const std::string& name) const;
  void check_covered(const std::string& name) const;
  [[noreturn]] void refuse_gap(const std::string& name, int64_t done, int64_t end) const;

  std::filesystem::path checkpoint_;
  std::map<std::string, SavedTensor> tensors_;
  int64_t num_updates_ = -1;
};

// True if the checkpoint holds the state of an optimizer.
bool has_optimizer_state(const std::filesystem::path& checkpoint);

}  // namespace smoe
