// Attention over terms (rf/attention.h): its rules, and the choice between the float64 loops and the tiles.
#include "rf/attention.h"

#include "attention/checks.h"
#include "attention/fused.h"
#include "attention/reference.h"
#include "common/arguments.h"
#include "common/error.h"

extern "C" rf_status rf_attention_check(const rf_attention_args* args) {
  return rf::core::guarded("attention", [&] {
    rf::core::check_attention(rf::core::arguments("attention", args), rf::core::CheckedFor::kEquation);
  });
}

extern "C" rf_status rf_attention_forward(const rf_attention_args* args) {
  return rf::core::guarded("attention", [&] {
    const rf_attention_args x = rf::core::arguments("attention", args);
    rf::core::check_attention(x, rf::core::CheckedFor::kKernels);
    rf::core::check_attention_out(x);
    x.dtype == RF_F64 ? rf::ref::attention(x) : rf::core::attention_fused(x);
  });
}

extern "C" rf_status rf_attention_backward(const rf_attention_args* args, const rf_attention_grads* grads) {
  return rf::core::guarded("attention", [&] {
    const rf_attention_args x = rf::core::arguments("attention", args);
    const rf_attention_grads g = rf::core::arguments("attention", grads, "grads");
    rf::core::check_attention(x, rf::core::CheckedFor::kKernels);
    rf::core::check_attention_grads(x, g);
    x.dtype == RF_F64 ? rf::ref::attention_backward(x, g) : rf::core::attention_fused_backward(x, g);
  });
}
