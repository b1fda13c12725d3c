// Lists the operators that would make the host wait if their tensors were on a GPU: those that read a value
// or a size back. What a kernel does inside is its own affair (the CPU forms of some read sizes, their GPU
// forms do not); copies to the host cannot be told apart on a CPU and are left to the tests on a device.
#pragma once

#include <ATen/record_function.h>

#include <set>
#include <string>
#include <vector>

namespace smoe::testing {

class HostReadRecorder {
 public:
  HostReadRecorder() {
    reads().clear();
    depth_in_kernel() = 0;
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(&HostReadRecorder::enter, &HostReadRecorder::leave)
            .needsInputs(true)
            .scopes({at::RecordScope::FUNCTION}));
  }
  ~HostReadRecorder() { at::removeCallback(handle_); }
  HostReadRecorder(const HostReadRecorder&) = delete;
  HostReadRecorder& operator=(const HostReadRecorder&) = delete;

  // Names of the operators seen so far, in order.
  const std::vector<std::string>& found() const { return reads(); }

 private:
  struct InKernel : at::ObserverContext {};

  static std::vector<std::string>& reads() {
    static thread_local std::vector<std::string> names;
    return names;
  }
  static int& depth_in_kernel() {
    static thread_local int depth = 0;
    return depth;
  }

  static std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction& function) {
    static const std::set<std::string> reading = {
        "aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::equal",
        "aten::is_nonzero",          "aten::_unique", "aten::_unique2",      "aten::unique_consecutive"};
    // These have GPU kernels that do not read sizes back.
    static const std::set<std::string> kernels = {"aten::_grouped_mm", "aten::_embedding_bag_forward_only",
                                                  "aten::nonzero_static", "aten::embedding_dense_backward"};
    const std::string name = function.name();
    if (kernels.contains(name)) {
      ++depth_in_kernel();
      return std::make_unique<InKernel>();
    }
    if (depth_in_kernel() > 0) return nullptr;
    if (reading.contains(name)) reads().push_back(name);
    // By a tensor of counts, and without a size for its result, which is the last input.
    const auto inputs = function.inputs();
    const bool by_number = inputs.size() > 2 && inputs[1].isInt();
    if (name == "aten::repeat_interleave" && !by_number && inputs.back().isNone()) reads().push_back(name);
    return nullptr;
  }
  static void leave(const at::RecordFunction& /*function*/, at::ObserverContext* context) {
    if (dynamic_cast<InKernel*>(context) != nullptr) --depth_in_kernel();
  }

  at::CallbackHandle handle_ = 0;
};

}  // namespace smoe::testing
