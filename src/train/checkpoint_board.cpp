#include "smoe/train/checkpoint_board.h"

#include "smoe/distributed/message_board.h"

namespace smoe {
namespace {

class BoardGroup : public CheckpointGroup {
 public:
  explicit BoardGroup(const Communicator& communicator)
      : rank_(communicator.rank()),
        world_size_(communicator.world_size()),
        board_(communicator.message_board("checkpoints")) {}
  int64_t rank() const override { return rank_; }
  int64_t world_size() const override { return world_size_; }
  void publish(const std::string& key, const std::string& value) override { board_->publish(key, value); }
  std::string await(const std::string& key, int64_t from) override { return board_->await(key, from); }

 private:
  int64_t rank_;
  int64_t world_size_;
  std::shared_ptr<MessageBoard> board_;
};

}  // namespace

std::shared_ptr<CheckpointGroup> make_checkpoint_group(const Communicator& communicator) {
  return communicator.world_size() == 1 ? nullptr : std::make_shared<BoardGroup>(communicator);
}

}  // namespace smoe
