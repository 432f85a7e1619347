// The library `roformer` of PyTorch operators: schemas, and the functions without tensors. The operators compute in the
// given dtype, so autocast's fallthrough suffices without an autocast kernel.
#include <torch/library.h>

#include "attention_operator.h"
#include "dispatch.h"
#include "linear_attention_operator.h"
#include "rf/ops/openmp.h"
#include "row_operators.h"
#include "status.h"

namespace rf::ops {
namespace {

std::string target() {
  const std::string name = rf_target();
  TORCH_CHECK_VALUE(!name.empty(), rf_last_error());
  return name;
}
void set_target(std::string_view name) { check_status(rf_set_target(std::string(name).c_str())); }

std::tuple<int64_t, int64_t> memory_held() {
  const rf_memory held = rf_memory_held();
  return {held.work_bytes, held.table_bytes};
}

}  // namespace

TORCH_LIBRARY(roformer, library) {
  library.def(kRopeSchema, {at::Tag::pt2_compliant_tag});
  library.def(kRopeInplaceSchema, {at::Tag::pt2_compliant_tag});
  library.def(kRotateSchema, {at::Tag::pt2_compliant_tag});
  library.def(kRopeTableSchema, {at::Tag::pt2_compliant_tag});
  library.def(kDropoutSchema, {at::Tag::pt2_compliant_tag});
  library.def(attention_schema().c_str(), {at::Tag::pt2_compliant_tag});
  library.def(attention_backward_schema().c_str(), {at::Tag::pt2_compliant_tag});
  library.def(kLinearAttentionSchema, {at::Tag::pt2_compliant_tag});
  library.def(kLinearAttentionBackwardSchema, {at::Tag::pt2_compliant_tag});
  library.def(kNormSchema, {at::Tag::pt2_compliant_tag});
  library.def(kNormBackwardSchema, {at::Tag::pt2_compliant_tag});
  library.def(kGeluSchema, {at::Tag::pt2_compliant_tag});
  library.def(kGeluBackwardSchema, {at::Tag::pt2_compliant_tag});
  library.def(kLinearSchema, {at::Tag::pt2_compliant_tag});
  library.def(kLinearBackwardSchema, {at::Tag::pt2_compliant_tag});
  library.def("openmp_warning() -> str", openmp_warning);
  library.def("target() -> str", target);
  library.def("set_target(str name) -> ()", set_target);
  library.def("memory_held() -> (int, int)", memory_held);
  library.def("release_memory() -> ()", rf_release_memory);
}

}  // namespace rf::ops
