// TensorBoard event files, written by hand: scalars need two small messages of its protocol buffers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "smoe/train/callbacks.h"

namespace smoe {

// CRC-32C (Castagnoli) of `bytes`, unmasked.
uint32_t crc32c(std::string_view bytes);

// Writes records in the TFRecord framing: length, masked checksum of the length, data, masked checksum.
class EventFile {
 public:
  // Creates events.out.tfevents.<time>.<pid>.smoe in `folder`. Events of steps from `first_step` on in older
  // files of the folder are declared void, which is how TensorBoard learns of a resumed run.
  EventFile(const std::filesystem::path& folder, int64_t first_step);

  // One event with any number of (tag, value) pairs.
  void add_scalars(int64_t step, const std::vector<std::pair<std::string, double>>& scalars);

  const std::filesystem::path& path() const { return path_; }

 private:
  void write_record(std::string_view event);

  std::filesystem::path path_;
  std::ofstream stream_;
};

class TensorBoardLog : public TrainCallback {
 public:
  TensorBoardLog(const std::filesystem::path& folder, int64_t resumed_step)
      : file_(folder, resumed_step + 1) {}

  void on_step(const StepReport& report) override;
  void on_validation(const ValidationReport& report) override;
  void on_evaluation(int64_t step, const std::map<std::string, double>& results) override;

 private:
  EventFile file_;
};

}  // namespace smoe
