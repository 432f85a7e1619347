// Linear attention (rf/linear_attention.h): the choice between the float64 loops and the chunks, and the tasks of the
// latter. A task is a key head of a batch entry, or one of its two halves in the backward, so that whichever thread
// takes it, its result is the same.
#include "rf/linear_attention.h"

#include <algorithm>

#include "common/arguments.h"
#include "common/error.h"
#include "common/parallel_tasks.h"
#include "common/target.h"
#include "linear_attention/checks.h"
#include "linear_attention/problem.h"
#include "linear_attention/reference.h"

namespace rf::core {
namespace {

bool in_loops(const rf_linear_attention_args& args) {
  return use_reference() || args.dtype == RF_F64;
}

void forward(const rf_linear_attention_args& args) {
  const LinearProblem problem(args);
  const int64_t tasks = args.batch * args.key_heads;
  const TaskLoop loop{tasks, tasks > 1, linear_forward_bytes(problem)};
  parallel_tasks<Schedule::kDynamic>(loop, [&](int64_t i, void* space) {
    linear_forward_head(problem, i / args.key_heads, i % args.key_heads, space);
  });
}

void backward(const rf_linear_attention_args& args, const rf_linear_attention_grads& grads) {
  const LinearProblem problem(args);
  const int64_t tasks = 2 * args.batch * args.key_heads;
  const bool of_queries = grads.q != nullptr, of_keys = grads.k != nullptr || grads.v != nullptr;
  const int64_t bytes = std::max(linear_query_gradient_bytes(problem), linear_key_gradient_bytes(problem));
  parallel_tasks<Schedule::kDynamic>({tasks, tasks > 1, bytes}, [&](int64_t i, void* space) {
    const int64_t b = i / 2 / args.key_heads, key_head = i / 2 % args.key_heads;
    // The longer half first.
    if (i % 2 == 0 && of_keys) linear_key_gradient(problem, grads, b, key_head, space);
    if (i % 2 == 1 && of_queries) linear_query_gradient(problem, grads, b, key_head, space);
  });
}

}  // namespace
}  // namespace rf::core

extern "C" rf_status rf_linear_attention_forward(const rf_linear_attention_args* args) {
  return rf::core::guarded("linear_attention", [&] {
    const rf_linear_attention_args x = rf::core::arguments("linear_attention", args);
    rf::core::check_linear_attention(x);
    rf::core::in_loops(x) ? rf::ref::linear_attention(x) : rf::core::forward(x);
  });
}

extern "C" rf_status rf_linear_attention_backward(const rf_linear_attention_args* args,
                                                  const rf_linear_attention_grads* grads) {
  return rf::core::guarded("linear_attention", [&] {
    const rf_linear_attention_args x = rf::core::arguments("linear_attention", args);
    const rf_linear_attention_grads g = rf::core::arguments("linear_attention", grads, "grads");
    rf::core::check_linear_attention(x);
    const bool in_loops = rf::core::in_loops(x);
    rf::core::check_linear_attention_grads(x, g, in_loops);
    in_loops ? rf::ref::linear_attention_backward(x, g) : rf::core::backward(x, g);
  });
}
