// The library `roformer` of PyTorch operators: schemas, and the functions without tensors. The operators compute in the
// given dtype, so autocast's fallthrough suffices without an autocast kernel.
#include <torch/library.h>

#include "attention_operator.h"
#include "core_call.h"
#include "dispatch.h"
#include "linear_attention_operator.h"
#include "rf/ops/openmp.h"
#include "row_operators.h"

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
  const std::vector<at::Tag> tags = {at::Tag::pt2_compliant_tag};
  for (const char* schema : {kRopeSchema, kRopeInplaceSchema, kRotateSchema, kRopeTableSchema, kDropoutSchema,
                             kLinearAttentionSchema, kLinearAttentionBackwardSchema, kNormSchema, kNormBackwardSchema,
                             kGeluSchema, kGeluBackwardSchema, kLinearSchema, kLinearBackwardSchema}) {
    library.def(schema, tags);
  }
  for (const std::string& schema : {attention_schema(), attention_backward_schema()}) library.def(schema.c_str(), tags);
  library.def("openmp_warning() -> str", openmp_warning);
  library.def("target() -> str", target);
  library.def("set_target(str name) -> ()", set_target);
  library.def("memory_held() -> (int, int)", memory_held);
  library.def("release_memory() -> ()", rf_release_memory);
}

}  // namespace rf::ops
