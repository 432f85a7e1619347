// Attention over terms (rf/attention.h): rules, and the choice of who computes a call. Today that is always the float64
// reference; a kernel for the other dtypes takes its place here.
#include "rf/attention.h"

#include "attention_checks.h"
#include "error.h"
#include "ref/attention.h"

extern "C" rf_status rf_attention_forward(const rf_attention_args* args) {
  return rf::core::guarded("attention", [&] {
    rf::core::check_attention(args);
    rf::core::check_attention_out(*args);
    rf::ref::attention(*args);
  });
}

extern "C" rf_status rf_attention_backward(const rf_attention_args* args, const rf_attention_grads* grads) {
  return rf::core::guarded("attention", [&] {
    rf::core::check_attention(args);
    rf::core::check_attention_grads(*args, grads);
    rf::ref::attention_backward(*args, *grads);
  });
}
