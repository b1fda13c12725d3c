#include "eval/task_journal.h"

#include <string_view>

#include "eval/sample_log.h"
#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/core/log.h"

namespace smoe {
namespace {

constexpr auto kReplace = nlohmann::json::error_handler_t::replace;

std::string line_of(const nlohmann::json& value) { return value.dump(-1, ' ', false, kReplace) + "\n"; }

}  // namespace

TaskJournal::TaskJournal(const std::filesystem::path& folder, const std::string& task,
                         const std::string& fingerprint) {
  if (folder.empty()) return;
  std::filesystem::create_directories(folder);
  path_ = folder / sample_file_name(task);
  if (std::filesystem::is_regular_file(path_)) read(fingerprint);
  // Written anew, because the last line of a killed run may be torn.
  std::string text = line_of({{"run", fingerprint}});
  for (const auto& [key, value] : entries_) text += line_of({{"key", key}, {"value", value}});
  write_file_atomically(path_, text);
  stream_.open(path_, std::ios::app | std::ios::binary);
  SMOE_CHECK(Error, stream_.good(), "{}: cannot be opened for writing", path_.string());
}

void TaskJournal::read(const std::string& fingerprint) {
  const std::string text = read_file(path_);
  bool is_first = true;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) return;
    const auto line =
        nlohmann::json::parse(std::string_view(text).substr(begin, end - begin), nullptr, false);
    begin = end + 1;
    if (std::exchange(is_first, false)) {
      if (line.is_object() && line.value("run", "") == fingerprint) continue;
      SPDLOG_WARN("{}: belongs to a run with other settings, data or weights; starting anew", path_.string());
      return;
    }
    if (!line.is_object() || !line.contains("key") || !line.contains("value")) return;
    entries_[line["key"].get<std::string>()] = line["value"];
  }
}

const nlohmann::json* TaskJournal::find(const std::string& key) const {
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : &found->second;
}

void TaskJournal::add(const std::string& key, const nlohmann::json& value) {
  if (path_.empty()) return;
  stream_ << line_of({{"key", key}, {"value", value}}) << std::flush;
  SMOE_CHECK(Error, stream_.good(), "{}: writing failed; is the disk full?", path_.string());
}

}  // namespace smoe
