#include "smoe/distributed/communicator.h"

#include <c10/util/Logging.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "failure_watch.h"
#include "message_board_impl.h"
#include "roll_call.h"
#include "smoe/core/error.h"
#include "smoe/core/log.h"
#include "without_trace.h"

namespace smoe {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

double seconds_since(steady_clock::time_point start) {
  return std::chrono::duration<double>(steady_clock::now() - start).count();
}

milliseconds to_milliseconds(double seconds) { return milliseconds(std::llround(seconds * 1000.0)); }

// The part of the timeout in which ranks find out who failed, after an operation gave up.
milliseconds margin_of(double timeout_seconds) {
  return to_milliseconds(std::clamp(timeout_seconds / 3.0, 1.5, 15.0));
}

std::string here(const LaunchInfo& launch) {
  return fmt::format("rank {} of {}", launch.rank, launch.world_size);
}

void check_flat_pair(const at::Tensor& whole, const at::Tensor& part, int64_t world_size) {
  SMOE_ASSERT(whole.is_contiguous() && part.is_contiguous() && whole.scalar_type() == part.scalar_type());
  SMOE_ASSERT(whole.numel() == part.numel() * world_size);
}

}  // namespace

void check_backend(CommunicationBackend backend, const std::string& device) {
  const bool is_cpu = device == "cpu";
  SMOE_CHECK(ConfigError, backend != CommunicationBackend::kNccl || !is_cpu,
             "distributed.backend is nccl, which moves data between GPUs, but device is {}; set it to auto",
             device);
  SMOE_CHECK(ConfigError, backend != CommunicationBackend::kGloo || is_cpu,
             "distributed.backend is gloo, which is for device cpu, but device is {}; set it to auto",
             device);
  if (!is_cpu) check_nccl(device);
}

struct Communicator::Impl {
  LaunchInfo launch;
  double timeout_seconds = 0.0;
  StorePointer store;
  BackendPointer gloo, nccl;
  std::shared_ptr<FailureWatch> watch;  // shared by the subgroups
  std::vector<int64_t> members;         // ranks of the job, of each rank of this group
  std::string label;                    // before the names of operations; empty for the whole job
  bool is_whole_job = true;
  at::Device device = at::kCPU;

  milliseconds operation_timeout() const {
    return to_milliseconds(timeout_seconds) - margin_of(timeout_seconds);
  }
  c10d::Backend& backend_of(const at::Tensor& tensor) const {
    SMOE_ASSERT(tensor.is_cpu() || nccl);
    return tensor.is_cpu() ? *gloo : *nccl;
  }
  // What an operation that failed throws; also tells the others.
  Error failure(const std::string& name, steady_clock::time_point start, const std::string& why) const {
    const std::string culprit = watch->diagnose();
    watch->publish(culprit);
    return Error(fmt::format(
        "{}: operation `{}` of step {} failed after {:.1f} s because of {}. The library says: {}. Go on from "
        "the "
        "last checkpoint with --resume.",
        here(launch), label + name, watch->step(), seconds_since(start), culprit, without_stack_trace(why)));
  }
  // How a process ends that got to its end, or that failed.
  void leave();
  void linger();
  // Rank 0 holds the store (where the launcher does not): it waits until the others need it no more.
  void check_out(milliseconds longest);
};

struct PendingOperation::State {
  std::shared_ptr<Communicator::Impl> communicator;
  c10::intrusive_ptr<c10d::Work> work;
  std::string name;
  steady_clock::time_point start;
  std::vector<at::Tensor> tensors;  // kept until the end
};

void PendingOperation::wait() {
  if (state_ == nullptr) return;
  const std::shared_ptr<State> state = std::move(state_);
  state_ = nullptr;
  try {
    const bool is_cpu = state->tensors.front().is_cpu();
    // On a GPU only the stream waits; NCCL's own watch enforces the timeout.
    if (is_cpu ? state->work->wait(state->communicator->operation_timeout()) : state->work->wait()) return;
  } catch (const std::exception& error) {
    throw state->communicator->failure(state->name, state->start, error.what());
  }
  throw state->communicator->failure(state->name, state->start, "the operation was aborted");
}

namespace {

// Starts `operation`, which gives c10d's work.
template <class Operation>
PendingOperation start(const std::shared_ptr<Communicator::Impl>& impl, const std::string& name,
                       std::vector<at::Tensor> tensors, const Operation& operation) {
  impl->watch->begin(impl->label + name);
  auto state = std::make_shared<PendingOperation::State>();
  state->communicator = impl;
  state->name = name;
  state->start = steady_clock::now();
  try {
    state->work = operation(impl->backend_of(tensors.front()));
  } catch (const std::exception& error) {
    throw impl->failure(name, state->start, error.what());
  }
  state->tensors = std::move(tensors);
  return PendingOperation(std::move(state));
}

PendingOperation start_all_reduce(const std::shared_ptr<Communicator::Impl>& impl, const at::Tensor& tensor,
                                  const std::string& name, c10d::ReduceOp::RedOpType kind) {
  SMOE_ASSERT(tensor.is_contiguous());
  return start(impl, name, {tensor}, [&](c10d::Backend& backend) {
    std::vector<at::Tensor> tensors = {tensor};
    c10d::AllreduceOptions options;
    options.reduceOp = kind;
    return backend.allreduce(tensors, options);
  });
}

}  // namespace

Communicator::Communicator(std::shared_ptr<Impl> impl, int64_t rank, int64_t world_size)
    : impl_(std::move(impl)), rank_(rank), world_size_(world_size) {}

std::shared_ptr<Communicator> Communicator::single() {
  return std::shared_ptr<Communicator>(new Communicator(nullptr, 0, 1));
}

std::shared_ptr<Communicator> Communicator::connect(const LaunchInfo& launch, const DistributedConfig& config,
                                                    at::Device device) {
  if (!launch.is_distributed()) return single();
  check_backend(config.backend, device.str());
  // c10d logs stack traces of every connection that breaks; the errors here say it better.
  if (!environment_variable("TORCH_CPP_LOG_LEVEL")) FLAGS_caffe2_log_level = c10::GLOG_ERROR;
  auto impl = std::make_shared<Impl>();
  impl->launch = launch;
  impl->timeout_seconds = config.timeout_seconds;
  impl->device = device;
  for (int64_t rank = 0; rank < launch.world_size; ++rank) impl->members.push_back(rank);
  impl->store =
      call_the_roll(connect_store(launch, impl->operation_timeout()), launch, impl->operation_timeout());
  impl->watch = std::make_shared<FailureWatch>(impl->store, launch, margin_of(config.timeout_seconds));
  std::shared_ptr<Communicator> communicator(new Communicator(impl, launch.rank, launch.world_size));
  const GroupPlace place{static_cast<int>(launch.rank), static_cast<int>(launch.world_size),
                         impl->operation_timeout()};
  const auto begun = steady_clock::now();
  try {
    impl->gloo = make_gloo_group(c10::make_intrusive<c10d::PrefixStore>("gloo", impl->store), place,
                                 launch.main_address);
    if (device.is_cuda())
      impl->nccl =
          make_nccl_group(c10::make_intrusive<c10d::PrefixStore>("nccl", impl->store), place, device);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw impl->failure("connect", begun, error.what());
  }
  return communicator;
}

std::shared_ptr<Communicator> Communicator::subgroup(const std::vector<int64_t>& ranks,
                                                     const std::string& name) {
  if (ranks.size() == 1) return single();
  SMOE_ASSERT(impl_ != nullptr && std::is_sorted(ranks.begin(), ranks.end()));
  const auto own = std::find(ranks.begin(), ranks.end(), rank_);
  SMOE_ASSERT(own != ranks.end());
  auto impl = std::make_shared<Impl>();
  impl->launch = impl_->launch;
  impl->timeout_seconds = impl_->timeout_seconds;
  impl->device = impl_->device;
  impl->watch = impl_->watch;
  impl->is_whole_job = false;
  impl->label = name + ": ";
  for (const int64_t rank : ranks) impl->members.push_back(impl_->members[static_cast<size_t>(rank)]);
  const std::string prefix = fmt::format("group/{}/{}", name, fmt::join(impl->members, "-"));
  impl->store = c10::make_intrusive<c10d::PrefixStore>(prefix, impl_->store);
  const GroupPlace place{static_cast<int>(own - ranks.begin()), static_cast<int>(ranks.size()),
                         impl->operation_timeout()};
  const auto begun = steady_clock::now();
  try {
    impl->gloo = make_gloo_group(c10::make_intrusive<c10d::PrefixStore>("gloo", impl->store), place,
                                 impl->launch.main_address);
    if (impl->device.is_cuda())
      impl->nccl =
          make_nccl_group(c10::make_intrusive<c10d::PrefixStore>("nccl", impl->store), place, impl->device);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw impl->failure("connect", begun, error.what());
  }
  return std::shared_ptr<Communicator>(new Communicator(impl, place.rank, place.size));
}

std::shared_ptr<MessageBoard> Communicator::message_board(const std::string& name) const {
  SMOE_ASSERT(impl_ != nullptr);
  auto impl = std::make_unique<MessageBoard::Impl>();
  impl->signs = impl_->store->clone();
  impl->store = c10::make_intrusive<c10d::PrefixStore>("board/" + name, impl->signs);
  impl->watch = impl_->watch;
  impl->longest_silence = impl_->operation_timeout();
  return std::make_shared<MessageBoard>(std::move(impl));
}

void Communicator::Impl::check_out(milliseconds longest) {
  constexpr milliseconds kPause{20};
  const auto end = steady_clock::now() + longest;
  try {
    const bool holds_store = launch.rank == 0 && !launch.launcher_holds_store;
    store->add("left", 1);
    while (holds_store && store->add("left", 0) < launch.world_size && steady_clock::now() < end) {
      std::this_thread::sleep_for(kPause);
    }
  } catch (const std::exception&) {
    // A peer that ended badly has said so itself.
  }
}

void Communicator::Impl::leave() {
  constexpr milliseconds kLongest{5000};
  watch->stop();
  check_out(kLongest);
}

void Communicator::Impl::linger() {
  // The store may hang: only the process that holds it may wait for it.
  if (launch.rank == 0 && !launch.launcher_holds_store) {
    check_out(margin_of(timeout_seconds) * 3 / 10);
    return;
  }
  std::thread([this] { check_out(milliseconds(0)); }).detach();
}

Communicator::~Communicator() {
  if (impl_ == nullptr) return;
  if (impl_->watch->has_failed() || std::uncaught_exceptions() > 0) {
    // Operations may still be under way to a peer that never answers, and taking the groups down would wait
    // for them. They are left to the end of the process, which is near.
    Impl& left_behind = **new std::shared_ptr<Impl>(impl_);
    if (left_behind.is_whole_job) left_behind.linger();
    return;
  }
  if (impl_->is_whole_job && impl_->gloo) impl_->leave();
}

const LaunchInfo& Communicator::launch() const {
  static const LaunchInfo kSingle;
  return impl_ == nullptr ? kSingle : impl_->launch;
}

PendingOperation Communicator::start_all_reduce_sum(const at::Tensor& tensor, const std::string& name) {
  if (impl_ == nullptr) return {};
  return start_all_reduce(impl_, tensor, name, c10d::ReduceOp::SUM);
}

void Communicator::all_reduce_sum(const at::Tensor& tensor, const std::string& name) {
  start_all_reduce_sum(tensor, name).wait();
}

void Communicator::all_reduce_max(const at::Tensor& tensor, const std::string& name) {
  if (impl_ != nullptr) start_all_reduce(impl_, tensor, name, c10d::ReduceOp::MAX).wait();
}

void Communicator::broadcast(const at::Tensor& tensor, int64_t root, const std::string& name) {
  if (impl_ == nullptr) return;
  SMOE_ASSERT(tensor.is_contiguous());
  start(impl_, name, {tensor}, [&](c10d::Backend& backend) {
    std::vector<at::Tensor> tensors = {tensor};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    return backend.broadcast(tensors, options);
  }).wait();
}

PendingOperation Communicator::start_reduce_scatter_sum(const at::Tensor& part, const at::Tensor& whole,
                                                        const std::string& name) {
  check_flat_pair(whole, part, world_size_);
  if (impl_ == nullptr) {
    part.copy_(whole.view(part.sizes()));
    return {};
  }
  return start(impl_, name, {part, whole}, [&](c10d::Backend& backend) {
    at::Tensor output = part, input = whole;
    return backend._reduce_scatter_base(output, input);
  });
}

void Communicator::reduce_scatter_sum(const at::Tensor& part, const at::Tensor& whole,
                                      const std::string& name) {
  start_reduce_scatter_sum(part, whole, name).wait();
}

PendingOperation Communicator::start_all_gather(const at::Tensor& whole, const at::Tensor& part,
                                                const std::string& name) {
  check_flat_pair(whole, part, world_size_);
  if (impl_ == nullptr) {
    whole.copy_(part.view(whole.sizes()));
    return {};
  }
  return start(impl_, name, {part, whole}, [&](c10d::Backend& backend) {
    at::Tensor output = whole, input = part;
    return backend._allgather_base(output, input);
  });
}

void Communicator::all_gather(const at::Tensor& whole, const at::Tensor& part, const std::string& name) {
  start_all_gather(whole, part, name).wait();
}

void Communicator::barrier(const std::string& name) {
  if (impl_ != nullptr) all_reduce_sum(at::zeros({1}, at::kLong), name);
}

std::vector<std::string> Communicator::all_gather_strings(const std::string& text, const std::string& name) {
  if (impl_ == nullptr) return {text};
  const at::Tensor sizes = at::empty({world_size_}, at::kLong);
  all_gather(sizes, at::full({1}, static_cast<int64_t>(text.size()), at::kLong), name);
  const int64_t longest = sizes.max().item<int64_t>();
  if (longest == 0) return std::vector<std::string>(static_cast<size_t>(world_size_));
  at::Tensor part = at::zeros({longest}, at::kByte);
  std::copy(text.begin(), text.end(), part.mutable_data_ptr<uint8_t>());
  const at::Tensor whole = at::empty({world_size_ * longest}, at::kByte);
  all_gather(whole, part, name);
  std::vector<std::string> texts;
  for (int64_t rank = 0; rank < world_size_; ++rank) {
    const auto* const begin = reinterpret_cast<const char*>(whole.const_data_ptr<uint8_t>()) + rank * longest;
    texts.emplace_back(begin, static_cast<size_t>(sizes[rank].item<int64_t>()));
  }
  return texts;
}

void Communicator::set_step(int64_t step) {
  if (impl_ != nullptr) impl_->watch->set_step(step);
}

void Communicator::report_failure(const std::string& message) noexcept {
  if (impl_ == nullptr || impl_->watch->has_failed()) return;
  try {
    impl_->watch->publish(
        fmt::format("rank {}, which failed: {}", impl_->launch.rank, without_stack_trace(message)));
  } catch (const std::exception&) {
    // No memory for the message: the others notice that this process is gone.
  }
}

}  // namespace smoe
