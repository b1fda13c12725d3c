#include "smoe/train/tensorboard.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <chrono>

#include "append_log.h"
#include "smoe/core/error.h"

namespace smoe {
namespace {

constexpr std::string_view kFilePrefix = "events.out.tfevents.";
constexpr uint32_t kReversedPolynomial = 0x82f63b78;

constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kReversedPolynomial : 0);
    table[byte] = crc;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kCrcTable = make_crc_table();

// Checksums of data that holds checksums are weak; TFRecord therefore rotates and shifts them.
uint32_t masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return std::rotr(crc, 15) + 0xa282ead8;
}

template <class Number>
void append_little_endian(std::string& out, Number number) {
  using Bits = std::conditional_t<sizeof(Number) == 8, uint64_t, uint32_t>;
  Bits bits = std::bit_cast<Bits>(number);
  for (size_t i = 0; i < sizeof(Bits); ++i, bits >>= 8) out.push_back(static_cast<char>(bits & 0xff));
}

void append_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

// Wire types of protocol buffers.
enum class Wire : uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void append_key(std::string& out, uint64_t field, Wire wire) {
  append_varint(out, field << 3 | static_cast<uint64_t>(wire));
}

void append_bytes(std::string& out, uint64_t field, std::string_view bytes) {
  append_key(out, field, Wire::kBytes);
  append_varint(out, bytes.size());
  out += bytes;
}

// Event { double wall_time = 1; int64 step = 2; ... }, to which one of the payloads is appended:
// string file_version = 3; Summary summary = 5; SessionLog session_log = 7.
std::string begin_event(int64_t step) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  std::string event;
  append_key(event, 1, Wire::kFixed64);
  append_little_endian(event, std::chrono::duration<double>(now).count());
  append_key(event, 2, Wire::kVarint);
  append_varint(event, static_cast<uint64_t>(step));
  return event;
}

// Summary.Value { string tag = 1; float simple_value = 2; }
std::string scalar_value(const std::string& tag, double value) {
  std::string message;
  append_bytes(message, 1, tag);
  append_key(message, 2, Wire::kFixed32);
  append_little_endian(message, static_cast<float>(value));
  return message;
}

int64_t wall_clock_s() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

// The largest <time> in the names of event files in `folder`; 0 if there are none.
int64_t newest_event_time(const std::filesystem::path& folder) {
  int64_t newest = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kFilePrefix)) continue;
    int64_t time = 0;
    std::from_chars(name.data() + kFilePrefix.size(), name.data() + name.size(), time);
    newest = std::max(newest, time);
  }
  return newest;
}

void add_panels(std::vector<std::pair<std::string, double>>& scalars, const std::string& prefix,
                const std::vector<std::string>& budgets, const std::vector<RouterPanel>& panels) {
  for (size_t i = 0; i < panels.size(); ++i) {
    for (const RouterPanelField& field : kRouterPanelFields) {
      scalars.emplace_back(prefix + field.name + "/" + budgets[i], panels[i].*field.value);
    }
  }
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = 0xffffffff;
  for (const char c : bytes) crc = (crc >> 8) ^ kCrcTable[(crc ^ static_cast<unsigned char>(c)) & 0xff];
  return ~crc;
}

EventFile::EventFile(const std::filesystem::path& folder, int64_t first_step) {
  const int64_t seconds = std::max(wall_clock_s(), newest_event_time(folder) + 1);
  const auto path = folder / fmt::format("{}{}.{}.smoe", kFilePrefix, seconds, ::getpid());
  log_ = std::make_unique<AppendLog>(path, /*truncate=*/true);
  std::string version = begin_event(0);
  append_bytes(version, 3, "brain.Event:2");
  write_record(version);
  start_from(first_step);
}

EventFile::~EventFile() = default;

const std::filesystem::path& EventFile::path() const { return log_->path(); }

void EventFile::start_from(int64_t first_step) {
  std::string start = begin_event(first_step);
  append_bytes(start, 7, std::string_view("\x08\x01", 2));  // SessionLog { status = 1: START }
  write_record(start);
}

void EventFile::add_scalars(int64_t step, const std::vector<std::pair<std::string, double>>& scalars) {
  std::string summary;
  for (const auto& [tag, value] : scalars) append_bytes(summary, 1, scalar_value(tag, value));
  std::string event = begin_event(step);
  append_bytes(event, 5, summary);
  write_record(event);
}

void EventFile::write_record(std::string_view event) {
  std::string length;
  append_little_endian(length, static_cast<uint64_t>(event.size()));
  std::string record = length;
  append_little_endian(record, masked_crc(length));
  record += event;
  append_little_endian(record, masked_crc(event));
  log_->append(record);
}

void TensorBoardLog::on_step(const StepReport& report) {
  std::vector<std::pair<std::string, double>> scalars;
  for (size_t i = 0; i < report.losses.size(); ++i) {
    if (report.losses[i]) scalars.emplace_back("train/loss/" + report.budgets[i], *report.losses[i]);
  }
  scalars.emplace_back("train/weighted_loss", report.weighted_loss);
  scalars.emplace_back("train/balance_loss", report.balance_loss);
  scalars.emplace_back("train/router_z_loss", report.router_z_loss);
  scalars.emplace_back("train/learning_rate", report.learning_rate);
  scalars.emplace_back("train/gradient_norm", report.gradient_norm);
  scalars.emplace_back("train/processed_tokens_per_s", report.processed_tokens_per_s);
  scalars.emplace_back("train/peak_memory_bytes", static_cast<double>(report.peak_memory_bytes));
  add_panels(scalars, "router/", report.budgets, report.panels);
  file_.add_scalars(report.step, scalars);
}

void TensorBoardLog::on_validation(const ValidationReport& report) {
  std::vector<std::pair<std::string, double>> scalars;
  for (const SourceValidation& source : report.sources) {
    for (size_t i = 0; i < source.losses.size(); ++i) {
      const std::string suffix = "/" + source.name + "/" + report.budgets[i];
      scalars.emplace_back("validation/loss" + suffix, source.losses[i]);
      scalars.emplace_back("validation/bits_per_byte" + suffix, source.bits_per_byte[i]);
    }
  }
  for (size_t i = 0; i < report.nesting.size(); ++i) {
    scalars.emplace_back("validation/nesting/" + report.budgets[i] + "_in_" + report.budgets[i + 1],
                         report.nesting[i]);
  }
  add_panels(scalars, "validation_router/", report.budgets, report.panels);
  file_.add_scalars(report.step, scalars);
}

void TensorBoardLog::on_evaluation(int64_t step, const std::map<std::string, double>& results) {
  std::vector<std::pair<std::string, double>> scalars;
  for (const auto& [name, value] : results) scalars.emplace_back("evaluation/" + name, value);
  file_.add_scalars(step, scalars);
}

}  // namespace smoe
