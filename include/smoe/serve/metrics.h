// Counters of a server, and their text for Prometheus.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "smoe/infer/expert_store.h"
#include "smoe/infer/generation.h"

namespace smoe {

// Safe to share between threads.
class ServerMetrics {
 public:
  void count_response(const std::string& endpoint, int status);
  // A request that left the scheduler; `outcome` is stop, length, cancelled, timeout or failed.
  void count_outcome(const std::string& model_id, const std::string& outcome);
  // What a request has cost, whatever its outcome.
  void add_generation(const std::string& model_id, const GenerationStats& stats);
  void add_first_token(double seconds);
  void add_duration(double seconds);
  void count_rerun();
  void set_load(int64_t num_waiting, int64_t num_running);

  // `experts` may be null.
  std::string text(const ExpertStore* experts) const;

 private:
  struct Sum {
    double seconds = 0;
    int64_t count = 0;
  };

  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, int64_t> responses_;
  std::map<std::pair<std::string, std::string>, int64_t> outcomes_;
  std::map<std::string, std::pair<int64_t, int64_t>> tokens_;  // by model: prompt, answer
  Sum first_token_, duration_;
  GenerationStats generation_;
  int64_t num_reruns_ = 0;
  int64_t num_waiting_ = 0;
  int64_t num_running_ = 0;
};

}  // namespace smoe
