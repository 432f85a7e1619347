// Detection of tensors without values (known_values.h).
#include "known_values.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

namespace rf::nn {

bool values_are_known(const at::Tensor& x) {
  return !x.is_meta() && !x.key_set().has(c10::DispatchKey::Python) && !is_inside_transform() &&
         !at::functionalization::impl::isFunctionalTensor(x) && !c10::impl::dispatch_mode_enabled();
}

bool is_inside_transform() {
  return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode);
}

}  // namespace rf::nn
