#include "smoe/serve/metrics.h"

#include <fmt/format.h>

#include <iterator>

namespace smoe {
namespace {

// Text in Prometheus' exposition format.
class Exposition {
 public:
  void family(const char* name, const char* type, const char* help) {
    fmt::format_to(std::back_inserter(text_), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  template <class Value>
  void sample(const std::string& name, const std::string& labels, Value value) {
    fmt::format_to(std::back_inserter(text_), "{}{} {}\n", name, labels.empty() ? labels : "{" + labels + "}",
                   value);
  }
  template <class Value>
  void single(const char* name, const char* type, const char* help, Value value) {
    family(name, type, help);
    sample(name, "", value);
  }
  void summary(const char* name, const char* help, double sum, int64_t count) {
    family(name, "summary", help);
    sample(fmt::format("{}_sum", name), "", sum);
    sample(fmt::format("{}_count", name), "", count);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

std::string escaped(const std::string& value) {
  std::string result;
  for (const char letter : value) {
    if (letter == '\\' || letter == '"') result += '\\';
    if (letter == '\n') {
      result += "\\n";
    } else {
      result += letter;
    }
  }
  return result;
}

std::string label(const char* name, const std::string& value) {
  return fmt::format("{}=\"{}\"", name, escaped(value));
}

void add_store(const ExpertStore& store, Exposition& out) {
  const StreamingStatistics statistics = store.statistics();
  out.single("smoe_expert_store_hit_rate", "gauge", "Share of chosen experts that were in memory already.",
             statistics.hit_rate());
  out.single("smoe_expert_store_reads_total", "counter", "Experts read from disk.", statistics.num_reads);
  out.single("smoe_expert_store_read_bytes_total", "counter", "Bytes of experts read from disk.",
             statistics.bytes_read);
  out.single("smoe_expert_store_retries_total", "counter", "Reads that were tried again.",
             statistics.num_retries);
  out.single("smoe_expert_store_stall_seconds_total", "counter", "Time that layers waited for reads.",
             statistics.stall_s);
}

}  // namespace

void ServerMetrics::count_response(const std::string& endpoint, int status) {
  const std::lock_guard lock(mutex_);
  ++responses_[{endpoint, status}];
}

void ServerMetrics::count_outcome(const std::string& model_id, const std::string& outcome) {
  const std::lock_guard lock(mutex_);
  ++outcomes_[{model_id, outcome}];
}

void ServerMetrics::add_generation(const std::string& model_id, const GenerationStats& stats) {
  const std::lock_guard lock(mutex_);
  auto& [prompt_tokens, new_tokens] = tokens_[model_id];
  prompt_tokens += stats.prompt_tokens;
  new_tokens += stats.new_tokens;
  generation_.queue_s += stats.queue_s;
  generation_.prefill_s += stats.prefill_s;
  generation_.decode_s += stats.decode_s;
  generation_.refreshes += stats.refreshes;
  generation_.selected_experts += stats.selected_experts;
  generation_.kept_experts += stats.kept_experts;
}

void ServerMetrics::add_first_token(double seconds) {
  const std::lock_guard lock(mutex_);
  first_token_.seconds += seconds;
  ++first_token_.count;
}

void ServerMetrics::add_duration(double seconds) {
  const std::lock_guard lock(mutex_);
  duration_.seconds += seconds;
  ++duration_.count;
}

void ServerMetrics::count_rerun() {
  const std::lock_guard lock(mutex_);
  ++num_reruns_;
}

void ServerMetrics::set_load(int64_t num_waiting, int64_t num_running) {
  const std::lock_guard lock(mutex_);
  num_waiting_ = num_waiting;
  num_running_ = num_running;
}

std::string ServerMetrics::text(const ExpertStore* experts) const {
  const std::lock_guard lock(mutex_);
  Exposition out;
  out.family("smoe_http_responses_total", "counter", "HTTP responses by endpoint and status.");
  for (const auto& [key, count] : responses_) {
    out.sample("smoe_http_responses_total",
               label("endpoint", key.first) + "," + label("status", std::to_string(key.second)), count);
  }
  out.family("smoe_requests_total", "counter", "Generations that ended, by model and outcome.");
  for (const auto& [key, count] : outcomes_) {
    out.sample("smoe_requests_total", label("model", key.first) + "," + label("outcome", key.second), count);
  }
  out.family("smoe_prompt_tokens_total", "counter", "Tokens of prompts.");
  for (const auto& [model, tokens] : tokens_) {
    out.sample("smoe_prompt_tokens_total", label("model", model), tokens.first);
  }
  out.family("smoe_generated_tokens_total", "counter", "Tokens of answers.");
  for (const auto& [model, tokens] : tokens_) {
    out.sample("smoe_generated_tokens_total", label("model", model), tokens.second);
  }
  out.single("smoe_queue_length", "gauge", "Requests that wait for a place.", num_waiting_);
  out.single("smoe_running_requests", "gauge", "Requests that get tokens now.", num_running_);
  out.summary("smoe_first_token_seconds", "From submission to the first token.", first_token_.seconds,
              first_token_.count);
  out.summary("smoe_request_seconds", "From submission to the end.", duration_.seconds, duration_.count);
  out.single("smoe_queue_seconds_total", "counter", "Time that requests waited.", generation_.queue_s);
  out.single("smoe_prefill_seconds_total", "counter", "Time of prefills, once for each request in them.",
             generation_.prefill_s);
  out.single("smoe_decode_seconds_total", "counter", "Time of decoding, once for each request in it.",
             generation_.decode_s);
  out.single("smoe_refreshes_total", "counter", "New choices of experts while decoding.",
             generation_.refreshes);
  out.single("smoe_refresh_selected_experts_total", "counter", "Experts of these choices.",
             generation_.selected_experts);
  out.single("smoe_refresh_kept_experts_total", "counter", "Experts that the choice before had too.",
             generation_.kept_experts);
  out.single("smoe_refresh_hit_rate", "gauge", "Share of experts that refreshes kept.",
             generation_.kept_share());
  out.single("smoe_reruns_total", "counter", "Requests run again alone after a forward pass failed.",
             num_reruns_);
  if (experts != nullptr) add_store(*experts, out);
  return out.take();
}

}  // namespace smoe
