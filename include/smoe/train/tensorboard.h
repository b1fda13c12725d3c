// TensorBoard event files, written by hand: scalars need two small messages of its protocol buffers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "smoe/train/callbacks.h"

namespace smoe {

class AppendLog;

// CRC-32C (Castagnoli) of `bytes`, unmasked.
uint32_t crc32c(std::string_view bytes);

// Writes records in the TFRecord framing: length, masked checksum of the length, data, masked checksum.
class EventFile {
 public:
  // Creates events.out.tfevents.<time>.<pid>.smoe in `folder`, where <time> is later than in all names that
  // are there, whatever the clock says: TensorBoard reads the files in the order of their names. Events of
  // steps from `first_step` on in older files of the folder are declared void, which is how TensorBoard
  // learns of a resumed run.
  EventFile(const std::filesystem::path& folder, int64_t first_step);
  ~EventFile();

  // Declares the events of steps from `first_step` on void, as the constructor does.
  void start_from(int64_t first_step);

  // One event with any number of (tag, value) pairs.
  void add_scalars(int64_t step, const std::vector<std::pair<std::string, double>>& scalars);

  const std::filesystem::path& path() const;

 private:
  void write_record(std::string_view event);

  std::unique_ptr<AppendLog> log_;
};

class TensorBoardLog : public TrainCallback {
 public:
  TensorBoardLog(const std::filesystem::path& folder, int64_t resumed_step)
      : file_(folder, resumed_step + 1) {}

  void on_step(const StepReport& report) override;
  void on_validation(const ValidationReport& report) override;
  void on_evaluation(int64_t step, const std::map<std::string, double>& results) override;
  void on_rollback(const RollbackReport& report) override { file_.start_from(report.to_step + 1); }

 private:
  EventFile file_;
};

}  // namespace smoe
