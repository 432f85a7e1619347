// Attention over terms (rf/attention.h): rules, and the choice of who computes a call: the float64 loops or the tiles.
#include "rf/attention.h"

#include "attention_checks.h"
#include "attention_fused.h"
#include "error.h"
#include "ref/attention.h"

extern "C" rf_status rf_attention_forward(const rf_attention_args* args) {
  return rf::core::guarded("attention", [&] {
    rf::core::check_attention(args);
    rf::core::check_attention_out(*args);
    args->dtype == RF_F64 ? rf::ref::attention(*args) : rf::core::attention_fused(*args);
  });
}

extern "C" rf_status rf_attention_backward(const rf_attention_args* args, const rf_attention_grads* grads) {
  return rf::core::guarded("attention", [&] {
    rf::core::check_attention(args);
    rf::core::check_attention_grads(*args, grads);
    args->dtype == RF_F64 ? rf::ref::attention_backward(*args, *grads)
                          : rf::core::attention_fused_backward(*args, *grads);
  });
}
