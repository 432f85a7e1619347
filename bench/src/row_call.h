// Calls of the kernels that make an array of rows out of another one: GELU and softmax.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>

#include <memory>

#include "formula.h"

namespace rf::bench {

// A call and what it reads and writes.
template <class Args, class Grads>
struct RowCall {
  Args args = sized<Args>();
  Grads grads = sized<Grads>();
  at::Tensor x, dy, y, dx;

  RowCall(int64_t rows, int64_t columns, const Type& type)
      : x(normal({rows, columns}, type.torch)),
        dy(normal({rows, columns}, type.torch)),
        y(at::empty_like(x)),
        dx(at::empty_like(x)) {
    args.dtype = type.core;
    args.rows = rows;
    args.columns = columns;
    args.x_stride = args.y_stride = grads.x_stride = grads.y_stride = columns;
    args.x = x.const_data_ptr();
    args.y = y.data_ptr();
    grads.y = dy.const_data_ptr();
    grads.x = dx.data_ptr();
  }
};

}  // namespace rf::bench
