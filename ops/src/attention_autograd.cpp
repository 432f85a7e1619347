// First gradients of roformer::attention_kernel: its backward is a separate operator without gradients. Forward-mode
// differentiation is not supported.
#include "attention_operator.h"
#include "autograd.h"

namespace rf::ops {
namespace {

struct AttentionWithGradients : AttentionOperator {
  static constexpr const char *kWhere = "attention", *kHint = "kernel explicit has derivatives of any order";
  static constexpr const auto& kInputNames = ops::kInputNames;
  static constexpr size_t kKept = 2;
  static auto inputs(const Call& call) { return inputs_of(call); }
};

}  // namespace

TORCH_LIBRARY_IMPL(roformer, Autograd, library) {
  library.impl("attention_kernel", boxed<with_gradients<AttentionWithGradients>>());
}

}  // namespace rf::ops
