#include "eval/judge_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/core/log.h"

namespace smoe {
namespace {

std::string last_error() { return std::generic_category().message(errno); }

JudgeReply reply_from_json(const nlohmann::json& line) {
  JudgeReply reply;
  reply.answered = true;
  reply.text = line.at("text").get<std::string>();
  reply.logprobs = line.at("logprobs");
  reply.prompt_tokens = line.at("prompt_tokens").get<int64_t>();
  reply.completion_tokens = line.at("completion_tokens").get<int64_t>();
  return reply;
}

}  // namespace

JudgeLog::JudgeLog(std::filesystem::path path) : path_(std::move(path)) {
  const size_t complete_bytes = std::filesystem::exists(path_) ? read_lines() : 0;
  file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  SMOE_CHECK(
      DataError, file_ >= 0,
      "{}: cannot open the log of judgements for writing: {}; make it writable, or name another folder "
      "with --out",
      path_.string(), last_error());
  SMOE_CHECK(DataError, ::ftruncate(file_, static_cast<off_t>(complete_bytes)) == 0,
             "{}: cannot cut off the half-written last line: {}", path_.string(), last_error());
}

JudgeLog::~JudgeLog() {
  if (file_ >= 0) ::close(file_);
}

// Returns the bytes up to the end of the last complete line.
size_t JudgeLog::read_lines() {
  const std::string bytes = read_file(path_);
  size_t begin = 0;
  for (int64_t line_number = 1; begin < bytes.size(); ++line_number) {
    const size_t end = bytes.find('\n', begin);
    if (end == std::string::npos) {
      SPDLOG_WARN("{}:{}: dropped a half-written line; its request will be sent again", path_.string(),
                  line_number);
      break;
    }
    try {
      const nlohmann::json line = nlohmann::json::parse(bytes.begin() + static_cast<std::ptrdiff_t>(begin),
                                                        bytes.begin() + static_cast<std::ptrdiff_t>(end));
      replies_[line.at("request").get<std::string>()] = reply_from_json(line);
    } catch (const nlohmann::json::exception& error) {
      throw DataError(
          fmt::format("{}:{}: not a line of a judgement log ({}). Remove the line to have its request sent "
                      "again, or name "
                      "another folder with --out",
                      path_.string(), line_number, error.what()));
    }
    begin = end + 1;
  }
  return begin;
}

std::optional<JudgeReply> JudgeLog::find(const std::string& request_hash) const {
  const std::lock_guard lock(mutex_);
  const auto found = replies_.find(request_hash);
  if (found == replies_.end()) return std::nullopt;
  return found->second;
}

void JudgeLog::add(const std::string& request_hash, const std::string& label, const JudgeReply& reply) {
  const nlohmann::ordered_json json = {{"request", request_hash},
                                       {"label", label},
                                       {"text", reply.text},
                                       {"logprobs", reply.logprobs},
                                       {"prompt_tokens", reply.prompt_tokens},
                                       {"completion_tokens", reply.completion_tokens}};
  const std::string line = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  const std::lock_guard lock(mutex_);
  for (size_t done = 0; done < line.size();) {
    const ssize_t written = ::write(file_, line.data() + done, line.size() - done);
    if (written < 0 && errno == EINTR) continue;
    SMOE_CHECK(DataError, written > 0, "{}: cannot write to the log of judgements: {}", path_.string(),
               last_error());
    done += static_cast<size_t>(written);
  }
  SMOE_CHECK(DataError, ::fdatasync(file_) == 0, "{}: cannot bring a judgement to the disk: {}",
             path_.string(), last_error());
  replies_[request_hash] = reply;
}

}  // namespace smoe
