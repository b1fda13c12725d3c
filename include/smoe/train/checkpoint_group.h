// How the processes of a run agree on a checkpoint: by messages through a store, never by collectives. They
// are written by a thread beside the training loop, and collectives of two threads would get mixed up.
#pragma once

#include <cstdint>
#include <string>

namespace smoe {

class CheckpointGroup {
 public:
  virtual ~CheckpointGroup() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t world_size() const = 0;
  // Makes `value` known to all under `key`. A key is used once in the life of the group.
  virtual void publish(const std::string& key, const std::string& value) = 0;
  // The value of `key`, as soon as rank `from` has published it. Throws Error if that process fails or dies.
  virtual std::string await(const std::string& key, int64_t from) = 0;
};

}  // namespace smoe
