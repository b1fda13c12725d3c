// The one thread that owns the model: takes requests from any thread, runs them together in a generation
// session, and hands their tokens back through tickets.
//
// An expert that cannot be read ends the requests that need it (see GenerationSession). Where a forward pass
// fails in another way, nothing says which of the requests in it is to blame. Each of them is then run again by itself, without sending again what was sent; the ones
// that fail alone too get the error, the others go on.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "smoe/infer/generation_session.h"
#include "smoe/serve/api_error.h"
#include "smoe/serve/metrics.h"
#include "smoe/serve/served_model.h"

namespace smoe {

struct ServeEvent {
  std::optional<int32_t> token;
  std::string text;
  std::optional<double> logprob;
  std::optional<FinishReason> finish;
  std::optional<ApiError> error;  // the last event, instead of `finish`

  bool is_last() const { return finish || error; }
};

// One request's way back to the thread that waits for it.
class Ticket {
 public:
  // The next event, in order; none if `timeout` passed first.
  std::optional<ServeEvent> next(std::chrono::milliseconds timeout);
  // The request ends as soon as the scheduler sees it; nobody has to listen any more.
  void cancel() { is_cancelled_ = true; }
  bool is_cancelled() const { return is_cancelled_; }

 private:
  friend class Scheduler;
  void push(ServeEvent event);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<ServeEvent> events_;
  std::atomic<bool> is_cancelled_ = false;
};

struct SchedulerLimits {
  int64_t max_waiting = 64;        // requests that wait for a place; further ones are refused (429)
  double request_timeout_s = 600;  // from submission to the last token
};

class Scheduler {
 public:
  // `served` and `metrics` must outlive the scheduler.
  Scheduler(const ServedModel& served, const SchedulerLimits& limits, ServerMetrics& metrics);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Throws ApiError: 429 where the queue is full, 503 while shutting down.
  std::shared_ptr<Ticket> submit(const std::string& model_id, GenerationRequest request);
  // Takes no more requests, finishes those it has, and ends the ones that are left after `grace_s`.
  void shutdown(double grace_s);

 private:
  using Clock = std::chrono::steady_clock;
  struct Job;
  using JobPointer = std::shared_ptr<Job>;

  void loop();
  bool take_inbox();
  void admit();
  void start(const JobPointer& job);
  void cancel_ended();
  void step();
  void recover(const std::string& problem);
  void collect_finished();
  bool deliver(Job& job, const TokenEvent& event);
  void fail(Job& job, const ApiError& error, const std::string& outcome);
  void end_all(const ApiError& error);
  void publish_load();

  const ServedModel& served_;
  SchedulerLimits limits_;
  ServerMetrics& metrics_;

  std::mutex mutex_;  // guards what submit() and shutdown() share with the thread
  std::condition_variable changed_;
  std::deque<JobPointer> inbox_;
  int64_t num_waiting_ = 0;  // everywhere: in the inbox, held back, and in the session
  bool is_stopping_ = false;
  bool is_idle_ = true;
  bool must_end_ = false;

  // Of the thread alone.
  std::unique_ptr<GenerationSession> session_;
  std::map<int64_t, JobPointer> active_;  // by the session's number
  std::deque<JobPointer> held_back_;      // wait until no request has to run alone
  std::deque<JobPointer> suspects_;       // have to run alone
  bool runs_alone_ = false;
  std::thread thread_;
};

}  // namespace smoe
