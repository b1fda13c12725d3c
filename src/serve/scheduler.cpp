#include "smoe/serve/scheduler.h"

#include <spdlog/spdlog.h>

#include <algorithm>

namespace smoe {

std::optional<ServeEvent> Ticket::next(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, timeout, [&] { return !events_.empty(); })) return std::nullopt;
  ServeEvent event = std::move(events_.front());
  events_.pop_front();
  return event;
}

void Ticket::push(ServeEvent event) {
  {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
  }
  changed_.notify_one();
}

struct Scheduler::Job {
  std::string model_id;
  GenerationRequest request;
  std::shared_ptr<Ticket> ticket = std::make_shared<Ticket>();
  Clock::time_point submitted = Clock::now();
  Clock::time_point deadline;
  std::vector<std::optional<int32_t>> sent;  // tokens of the events that the ticket has
  size_t position = 0;                       // events of the current run
  bool has_ended = false;                    // the ticket has its last event
};

Scheduler::Scheduler(const ServedModel& served, const SchedulerLimits& limits, ServerMetrics& metrics)
    : served_(served), limits_(limits), metrics_(metrics), thread_([this] { loop(); }) {}

Scheduler::~Scheduler() { shutdown(0); }

std::shared_ptr<Ticket> Scheduler::submit(const std::string& model_id, GenerationRequest request) {
  auto job = std::make_shared<Job>();
  job->model_id = model_id;
  job->request = std::move(request);
  job->deadline = job->submitted + std::chrono::duration_cast<Clock::duration>(
                                       std::chrono::duration<double>(limits_.request_timeout_s));
  {
    const std::lock_guard lock(mutex_);
    if (is_stopping_) throw ApiError(503, "shutting_down", "the server is shutting down");
    if (num_waiting_ >= limits_.max_waiting) {
      throw ApiError(429, "queue_full",
                     fmt::format("{} requests wait already; try again later", num_waiting_));
    }
    ++num_waiting_;
    is_idle_ = false;
    inbox_.push_back(job);
  }
  changed_.notify_all();
  return job->ticket;
}

void Scheduler::shutdown(double grace_s) {
  {
    std::unique_lock lock(mutex_);
    is_stopping_ = true;
    changed_.notify_all();
    changed_.wait_for(lock, std::chrono::duration<double>(grace_s), [&] { return is_idle_; });
    must_end_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Scheduler::loop() {
  session_ = std::make_unique<GenerationSession>(served_.model, *served_.tokenizer, served_.session);
  while (take_inbox()) {
    admit();
    cancel_ended();
    step();
    collect_finished();
    publish_load();
  }
  end_all(ApiError(503, "shutting_down", "the server has shut down before the answer was complete"));
}

// Sleeps while there is nothing to do. False when the thread must end.
bool Scheduler::take_inbox() {
  std::unique_lock lock(mutex_);
  if (active_.empty() && held_back_.empty() && suspects_.empty() && inbox_.empty()) {
    is_idle_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !inbox_.empty() || must_end_; });
  }
  held_back_.insert(held_back_.end(), inbox_.begin(), inbox_.end());
  inbox_.clear();
  return !must_end_;
}

void Scheduler::admit() {
  if (runs_alone_ && active_.empty()) runs_alone_ = false;
  if (!suspects_.empty()) {
    // After a failure the session is new and empty; one suspect at a time has it for itself.
    if (!active_.empty()) return;
    runs_alone_ = true;
    const JobPointer job = suspects_.front();
    suspects_.pop_front();
    metrics_.count_rerun();
    start(job);
    return;
  }
  if (runs_alone_) return;
  while (!held_back_.empty()) {
    const JobPointer job = held_back_.front();
    held_back_.pop_front();
    start(job);
  }
}

void Scheduler::start(const JobPointer& job) {
  GenerationRequest request = job->request;
  job->position = 0;
  request.on_token = [this, pointer = job.get()](const TokenEvent& event) {
    return deliver(*pointer, event);
  };
  try {
    active_.emplace(session_->add(std::move(request)), job);
  } catch (const Error& error) {
    fail(*job, ApiError(400, "invalid_value", error.what()), "failed");
  }
}

// Requests whose client has gone or whose time is over, wherever they are.
void Scheduler::cancel_ended() {
  const Clock::time_point now = Clock::now();
  const auto has_ended = [&](Job& job) {
    if (job.ticket->is_cancelled() && !job.has_ended) {
      job.has_ended = true;
      metrics_.count_outcome(job.model_id, "cancelled");
    } else if (now >= job.deadline && !job.has_ended) {
      fail(job,
           ApiError(503, "timeout",
                    fmt::format("the answer was not complete within {} s", limits_.request_timeout_s)),
           "timeout");
    }
    return job.has_ended;
  };
  for (auto& [number, job] : active_) {
    if (has_ended(*job)) session_->cancel(number);
  }
  std::erase_if(held_back_, [&](const JobPointer& job) { return has_ended(*job); });
  std::erase_if(suspects_, [&](const JobPointer& job) { return has_ended(*job); });
}

void Scheduler::step() {
  try {
    session_->step();
  } catch (const std::exception& error) {
    recover(error.what());
  }
}

void Scheduler::recover(const std::string& problem) {
  spdlog::error("a forward pass failed: {}", problem);
  // Numbers ascend and the session admits in order: the last ones still waited and had no part in it.
  const int64_t num_waiting = session_->num_waiting();
  collect_finished();
  std::vector<JobPointer> jobs;
  for (const auto& [number, job] : active_) jobs.push_back(job);
  active_.clear();
  session_ = std::make_unique<GenerationSession>(served_.model, *served_.tokenizer, served_.session);
  const size_t num_suspects = jobs.size() - std::min(jobs.size(), static_cast<size_t>(num_waiting));
  held_back_.insert(held_back_.begin(), jobs.begin() + static_cast<std::ptrdiff_t>(num_suspects), jobs.end());
  for (size_t i = 0; i < num_suspects; ++i) {
    Job& job = *jobs[i];
    if (job.has_ended) continue;
    if (runs_alone_ || num_suspects == 1) {
      fail(job, ApiError(500, "generation_failed", "the answer could not be computed: " + problem), "failed");
    } else {
      suspects_.push_back(jobs[i]);
    }
  }
}

void Scheduler::collect_finished() {
  for (const GenerationResult& result : session_->take_finished()) {
    const auto found = active_.find(result.request);
    if (found == active_.end()) continue;
    Job& job = *found->second;
    metrics_.add_generation(job.model_id, result.stats);
    metrics_.add_duration(std::chrono::duration<double>(Clock::now() - job.submitted).count());
    if (!job.has_ended) {
      metrics_.count_outcome(job.model_id, "cancelled");
      job.has_ended = true;
    }
    active_.erase(found);
  }
}

bool Scheduler::deliver(Job& job, const TokenEvent& event) {
  if (job.has_ended || job.ticket->is_cancelled()) return false;
  if (event.finish == FinishReason::kFailed) {
    fail(job, ApiError(500, "generation_failed", "the answer could not be computed: " + event.error),
         "failed");
    return true;
  }
  if (job.position < job.sent.size()) {
    // Run again: what was sent must come again, up to the rounding of sums, which the batch's size decides.
    if (job.sent[job.position] == event.token && !event.finish) {
      ++job.position;
      return true;
    }
    fail(job,
         ApiError(500, "generation_failed",
                  "a forward pass failed, and the answer could not be continued in the same way"),
         "failed");
    return false;
  }
  if (job.sent.empty()) {
    metrics_.add_first_token(std::chrono::duration<double>(Clock::now() - job.submitted).count());
  }
  ++job.position;
  job.sent.push_back(event.token);
  if (event.finish) {
    job.has_ended = true;
    metrics_.count_outcome(job.model_id, event.finish == FinishReason::kLength ? "length" : "stop");
  }
  job.ticket->push({event.token, event.text, event.logprob, event.finish, std::nullopt});
  return true;
}

void Scheduler::fail(Job& job, const ApiError& error, const std::string& outcome) {
  job.has_ended = true;
  metrics_.count_outcome(job.model_id, outcome);
  ServeEvent event;
  event.error = error;
  job.ticket->push(std::move(event));
}

void Scheduler::end_all(const ApiError& error) {
  std::vector<JobPointer> jobs(held_back_.begin(), held_back_.end());
  jobs.insert(jobs.end(), suspects_.begin(), suspects_.end());
  for (const auto& [number, job] : active_) jobs.push_back(job);
  {
    const std::lock_guard lock(mutex_);
    jobs.insert(jobs.end(), inbox_.begin(), inbox_.end());
    inbox_.clear();
    is_idle_ = true;
  }
  for (const JobPointer& job : jobs) {
    if (!job->has_ended) fail(*job, error, "cancelled");
  }
  session_.reset();
}

void Scheduler::publish_load() {
  const std::lock_guard lock(mutex_);
  num_waiting_ =
      std::ssize(inbox_) + std::ssize(held_back_) + std::ssize(suspects_) + session_->num_waiting();
  metrics_.set_load(num_waiting_, session_->num_running());
}

}  // namespace smoe
