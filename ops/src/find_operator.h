// A registered operator as the dispatcher calls it.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace rf::ops {

// `name` with its namespace, for example "roformer::rope". Keep the result in a static, because the search takes a
// lock.
inline c10::OperatorHandle find_schema(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
}

template <class Signature>
c10::TypedOperatorHandle<Signature> find_operator(const char* name) {
  return find_schema(name).typed<Signature>();
}

}  // namespace rf::ops
