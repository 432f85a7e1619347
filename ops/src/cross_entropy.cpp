// roformer::cross_entropy on CPU and Meta tensors: rf_cross_entropy_* behind PyTorch's dispatcher. The forward does not
// change the logits and keeps one number per row for the backward, which writes a tensor of the same size.
#include <torch/library.h>

#include "find_operator.h"
#include "rf/rows.h"
#include "row_arguments.h"
#include "status.h"

namespace rf::ops {
namespace {

constexpr const char* kWhere = "cross_entropy";

void check(const at::Tensor& logits, const at::Tensor& targets) {
  check_rows(kWhere, "logits", logits);
  TORCH_CHECK_VALUE(logits.dim() == 2, "[cross_entropy] logits must be [rows, classes], got ", logits.sym_sizes());
  TORCH_CHECK_VALUE(logits.sym_size(1) >= 1, "[cross_entropy] logits must have a class, got ", logits.sym_sizes());
  TORCH_CHECK_VALUE(targets.scalar_type() == at::kLong, "[cross_entropy] targets must be int64, got ",
                    targets.scalar_type());
  TORCH_CHECK_VALUE(targets.dim() == 1 && targets.sym_size(0) == logits.sym_size(0),
                    "[cross_entropy] targets must be [", logits.sym_size(0), "], got ", targets.sym_sizes());
  TORCH_CHECK_VALUE(targets.device() == logits.device(), "[cross_entropy] targets must be on ", logits.device(),
                    ", got ", targets.device());
}

void check_row_numbers(const char* name, const at::Tensor& x, const at::Tensor& logits) {
  TORCH_CHECK_VALUE(x.dim() == 1 && x.sym_size(0) == logits.sym_size(0), "[cross_entropy] ", name, " must be [",
                    logits.sym_size(0), "], got ", x.sym_sizes());
  TORCH_CHECK_VALUE(x.device() == logits.device(), "[cross_entropy] ", name, " must be on ", logits.device(), ", got ",
                    x.device());
}

rf_cross_entropy_args core_args(Borrowed<RowView> logits, Borrowed<at::Tensor> targets, int64_t ignore_index,
                                Borrowed<at::Tensor> log_sum) {
  rf_cross_entropy_args args{};
  args.struct_size = sizeof args;
  args.dtype = *core_dtype(logits->rows_NC.scalar_type());
  args.rows = logits->rows();
  args.columns = logits->columns();
  args.logits = logits->data();
  args.logits_stride = logits->stride();
  args.targets = targets->const_data_ptr<int64_t>();
  args.ignore_index = ignore_index;
  args.log_sum = log_sum->mutable_data_ptr<double>();
  return args;
}

CrossEntropyResult empty_results(const at::Tensor& logits) {
  const at::TensorOptions options = logits.options();
  return {at::empty_symint({logits.sym_size(0)}, options.dtype(parameter_type(logits))),
          at::empty_symint({logits.sym_size(0)}, options.dtype(at::kDouble))};
}

CrossEntropyResult forward_cpu(const at::Tensor& logits, const at::Tensor& targets, int64_t ignore_index) {
  check(logits, targets);
  auto [loss, log_sum] = empty_results(logits);
  const RowView rows(logits);
  const at::Tensor ready = targets.contiguous();
  rf_cross_entropy_args args = core_args(rows, ready, ignore_index, log_sum);
  args.loss = loss.mutable_data_ptr();
  call_core(rf_cross_entropy_forward, &args);
  return {loss, log_sum};
}

CrossEntropyResult forward_meta(const at::Tensor& logits, const at::Tensor& targets, int64_t /*ignore_index*/) {
  check(logits, targets);
  return empty_results(logits);
}

at::Tensor backward_cpu(const at::Tensor& grad, const at::Tensor& logits, const at::Tensor& targets,
                        const at::Tensor& log_sum, int64_t ignore_index) {
  check(logits, targets);
  check_row_numbers("grad", grad, logits);
  check_row_numbers("log_sum", log_sum, logits);
  const at::Tensor dlogits = empty_like_rows(logits);
  const RowView rows(logits);
  const at::Tensor ready = targets.contiguous();
  const at::Tensor kept = log_sum.to(at::kDouble).contiguous();
  const at::Tensor dloss = grad.to(parameter_type(logits)).contiguous();
  const rf_cross_entropy_args args = core_args(rows, ready, ignore_index, kept);
  rf_cross_entropy_grads grads{};
  grads.struct_size = sizeof grads;
  grads.loss = dloss.const_data_ptr();
  grads.loss_stride = 1;
  grads.logits = dlogits.mutable_data_ptr();
  grads.logits_stride = rows.columns();
  call_core(rf_cross_entropy_backward, &args, &grads);
  return dlogits;
}

at::Tensor backward_meta(const at::Tensor& grad, const at::Tensor& logits, const at::Tensor& targets,
                         const at::Tensor& log_sum, int64_t /*ignore_index*/) {
  check(logits, targets);
  check_row_numbers("grad", grad, logits);
  check_row_numbers("log_sum", log_sum, logits);
  return empty_like_rows(logits);
}

}  // namespace

CrossEntropyResult dispatch_cross_entropy(const at::Tensor& logits, const at::Tensor& targets, int64_t ignore_index) {
  using Signature = CrossEntropyResult(const at::Tensor&, const at::Tensor&, int64_t);
  static const auto op = find_operator<Signature>("roformer::cross_entropy");
  return op.call(logits, targets, ignore_index);
}

at::Tensor dispatch_cross_entropy_backward(const at::Tensor& grad, const at::Tensor& logits, const at::Tensor& targets,
                                           const at::Tensor& log_sum, int64_t ignore_index) {
  using Signature = at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, int64_t);
  static const auto op = find_operator<Signature>("roformer::cross_entropy_backward");
  return op.call(grad, logits, targets, log_sum, ignore_index);
}

at::Tensor cross_entropy(const at::Tensor& logits_NV, const at::Tensor& targets_N, int64_t ignore_index) {
  return std::get<0>(dispatch_cross_entropy(logits_NV, targets_N, ignore_index));
}

TORCH_LIBRARY_IMPL(roformer, CPU, library) {
  library.impl("cross_entropy", forward_cpu);
  library.impl("cross_entropy_backward", backward_cpu);
}

TORCH_LIBRARY_IMPL(roformer, Meta, library) {
  library.impl("cross_entropy", forward_meta);
  library.impl("cross_entropy_backward", backward_meta);
}

}  // namespace rf::ops
