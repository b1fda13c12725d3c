// Texts that processes leave for each other in the job's store, beside the collective operations. A thread of
// its own may use a board while another runs operations: boards need no order, and what is waited for may
// take any time as long as the process that is to leave it lives.
#pragma once

#include <cstdint>
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
  // Waits for the text that rank `from` of the job leaves under `key`. Throws Error once the job has failed,
  // and if `from` has given no sign of life for the job's timeout, which then ends the other processes too.
  std::string await(const std::string& key, int64_t from);

  struct Impl;
  explicit MessageBoard(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace smoe
