// Texts that processes leave for each other in the job's store, beside the collective operations. A thread of
// its own may use a board while another runs operations: boards need no order and know no timeout.
#pragma once

#include <memory>
#include <string>

namespace smoe {

class MessageBoard {
 public:
  ~MessageBoard();
  MessageBoard(const MessageBoard&) = delete;
  MessageBoard& operator=(const MessageBoard&) = delete;

  // Leaves `text` under `key`, which is used once. Throws Error if the store is gone.
  void publish(const std::string& key, const std::string& text);
  // Waits for the text under `key`, for as long as the job lives: a process that dies ends the others
  // (communicator.h). Throws Error once the job has failed.
  std::string await(const std::string& key);

  struct Impl;
  explicit MessageBoard(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace smoe
