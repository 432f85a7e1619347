// Layers by core's kernels (see the header).
#include "layers.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "memory.h"
#include "parallel_for.h"
#include "rf/io/half.h"
#include "rf/rope.h"
#include "status.h"

namespace rf::engine {

namespace {

using io::bf16_of_float;
using io::float_of_bf16;

constexpr int64_t kParallelElements = 65536;  // below them one thread is as fast

// nullopt for an activation that rf_gelu_forward does not compute.
std::optional<rf_gelu_form> form_of(Activation activation) {
  switch (activation) {
    case Activation::kGelu: return RF_GELU_ERF;
    case Activation::kGeluTanh: return RF_GELU_TANH;
    case Activation::kSilu: return RF_GELU_SILU;
    case Activation::kRelu:
    case Activation::kSquaredRelu:
    case Activation::kTanh: break;
  }
  return std::nullopt;
}

rf_linear_activation gelu_of(std::optional<Activation> activation) {
  return activation == Activation::kGelu       ? RF_LINEAR_GELU_ERF
         : activation == Activation::kGeluTanh ? RF_LINEAR_GELU_TANH
                                               : RF_LINEAR_NONE;
}

// The scales of rf_linear_pack_int8 that even out the errors of inputs and weights: sqrt(a_t / w_t) for the largest
// magnitudes a_t of input t and w_t of its weights (SmoothQuant, arXiv 2211.10438 Eq. 4 with alpha 1/2).
std::vector<float> input_scales(int64_t in, int64_t out, const float* weight, std::vector<float> inputs) {
  constexpr float kMinShare = 0x1p-20f;
  std::vector<float> weights(inputs.size());
  for (int64_t j = 0; j < out; ++j) {
    for (int64_t t = 0; t < in; ++t) weights[t] = std::max(weights[t], std::abs(weight[j * in + t]));
  }
  const float largest_input = *std::ranges::max_element(inputs), largest_weight = *std::ranges::max_element(weights);
  if (largest_input == 0 || largest_weight == 0) return std::vector<float>(inputs.size(), 1);
  for (int64_t t = 0; t < in; ++t) {
    const float of_input = std::max(inputs[t] / largest_input, kMinShare);
    const float of_weight = std::max(weights[t] / largest_weight, kMinShare);
    inputs[t] = std::sqrt(of_input / of_weight);
  }
  return inputs;
}

}  // namespace

Linear::Linear(Precision precision, int64_t in, int64_t out, const float* weight, std::vector<float> bias,
               const std::vector<float>& largest_inputs)
    : dtype_(activation_dtype(precision)), in_(in), out_(out), bias_(std::move(bias)) {
  rf_linear_packed* packed = nullptr;
  if (precision == Precision::kBfloat16) {
    const AlignedMemory rounded = make_aligned(in * out * bytes_of(RF_BF16), Pages::kHuge);
    from_floats(RF_BF16, in * out, weight, rounded.get());
    check_status(rf_linear_pack(RF_BF16, in, out, rounded.get(), in, &packed));
  } else if (precision == Precision::kInt8) {
    std::vector<float> scales;
    if (!largest_inputs.empty()) scales = input_scales(in, out, weight, largest_inputs);
    check_status(rf_linear_pack_int8(in, out, weight, in, scales.empty() ? nullptr : scales.data(), &packed));
  } else {
    check_status(rf_linear_pack(RF_F32, in, out, weight, in, &packed));
  }
  parts_.emplace_back(out, decltype(Part::packed)(packed));
}

Linear::Linear(int64_t in, const FileRows& weight, std::vector<float> bias)
    : in_(in), out_(std::ssize(weight.rows)), bias_(std::move(bias)) {
  const void* const* rows = weight.rows.data();
  for (const FileRows::Run& run : weight.runs) {
    rf_linear_packed* packed = nullptr;
    check_status(rf_linear_pack_blocks(run.type, in, run.rows, rows, &packed));
    parts_.emplace_back(run.rows, decltype(Part::packed)(packed));
    rows += run.rows;
  }
}

void Linear::set_gate(Activation gate) { gate_ = form_of(gate).value(); }

void Linear::operator()(int64_t rows, const void* x, int64_t x_stride, void* y,
                        std::optional<Activation> activation) const {
  rf_linear_args args = {};
  args.struct_size = sizeof args;
  args.dtype = dtype_;
  args.activation = gelu_of(activation);
  args.rows = rows;
  args.in = in_;
  args.x = x;
  args.x_stride = x_stride;
  args.y_stride = is_gated() ? out_ / 2 : out_;
  args.gate = gate_;
  int64_t column = 0;
  for (const Part& part : parts_) {
    args.out = part.out;
    args.packed = part.packed.get();
    args.bias = bias_.empty() ? nullptr : bias_.data() + column;
    args.y = static_cast<char*>(y) + column * bytes_of(dtype_);
    check_status(rf_linear_forward(&args));
    column += part.out;
  }
  if (activation && args.activation == RF_LINEAR_NONE) activate(*activation, dtype_, rows, out_, y, out_);
}

void Norm::operator()(rf_dtype dtype, int64_t rows, const void* x, const void* residual, void* y, void* sum) const {
  const int64_t gains = gain.empty() ? 1 : std::ssize(gain) / columns, row_bytes = columns * bytes_of(dtype);
  rf_norm_args args = {};
  args.struct_size = sizeof args;
  args.dtype = dtype;
  args.kind = kind == NormKind::kRms ? RF_NORM_RMS : RF_NORM_LAYER;
  args.rows = rows / gains;
  args.columns = columns;
  args.residual = residual;
  args.sum = sum;
  args.x_stride = args.residual_stride = args.y_stride = args.sum_stride = gains * columns;
  args.beta = bias.empty() ? nullptr : bias.data();
  args.eps = eps;
  for (int64_t i = 0; i < gains; ++i) {
    args.gamma = gain.empty() ? nullptr : gain.data() + i * columns;
    args.x = static_cast<const char*>(x) + i * row_bytes;
    args.y = static_cast<char*>(y) + i * row_bytes;
    check_status(rf_norm_forward(&args));
  }
}

// Without branches, for vectors: 0 for values up to 0; NaN stays NaN.
void relu(rf_dtype dtype, int64_t count, void* x) {
  const bool parallel = count > kParallelElements;
  if (dtype == RF_F32) {
    auto* values = static_cast<float*>(x);
    return parallel_for(count, parallel, [=](int64_t i) { values[i] = values[i] <= 0 ? 0.0f : values[i]; });
  }
  constexpr uint16_t kMinusZero = 0x8000, kMinusInfinity = 0xFF80;  // NaNs with a sign are above
  auto* values = static_cast<uint16_t*>(x);
  parallel_for(count, parallel, [=](int64_t i) {
    const uint16_t bits = values[i];
    values[i] = bits >= kMinusZero && bits <= kMinusInfinity ? uint16_t{0} : bits;
  });
}

// part(begin, end) for parts of `count` elements, whose loops use vectors.
template <class Part>
void in_parts(int64_t count, const Part& part) {
  constexpr int64_t kPart = 4096;
  parallel_for((count + kPart - 1) / kPart, count > kParallelElements,
               [&](int64_t i) { part(i * kPart, std::min(count, (i + 1) * kPart)); });
}

// y[i] = compute(y[i], x[i])
template <class Compute>
void update(rf_dtype dtype, int64_t count, const void* x, void* y, const Compute& compute) {
  if (dtype == RF_F32) {
    const auto* from = static_cast<const float*>(x);
    auto* to = static_cast<float*>(y);
    return in_parts(count, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] = compute(to[i], from[i]);
    });
  }
  const auto* from = static_cast<const uint16_t*>(x);
  auto* to = static_cast<uint16_t*>(y);
  in_parts(count, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = bf16_of_float(compute(float_of_bf16(to[i]), float_of_bf16(from[i])));
  });
}

// x = compute(x) * factor in rows with stride `stride`. factor: nullptr for 1; x is then contiguous.
template <class Compute>
void update_rows(rf_dtype dtype, int64_t rows, int64_t columns, int64_t stride, const void* factor, void* x,
                 const Compute& compute) {
  if (factor == nullptr) return update(dtype, rows * columns, x, x, [=](float value, float) { return compute(value); });
  const int64_t row_bytes = stride * bytes_of(dtype);
  parallel_for(rows, rows * columns > kParallelElements, [=](int64_t r) {
    update(dtype, columns, static_cast<const char*>(factor) + r * row_bytes, static_cast<char*>(x) + r * row_bytes,
           [=](float value, float times) { return compute(value) * times; });
  });
}

void activate(Activation activation, rf_dtype dtype, int64_t rows, int64_t columns, void* x, int64_t stride,
              const void* factor) {
  const std::optional<rf_gelu_form> form = form_of(activation);
  if (!form) {
    if (factor == nullptr && activation == Activation::kRelu) return relu(dtype, rows * columns, x);
    const auto rows_of = [=](const auto& compute) { update_rows(dtype, rows, columns, stride, factor, x, compute); };
    switch (activation) {
      case Activation::kRelu: return rows_of([](float value) { return value <= 0 ? 0.0F : value; });
      case Activation::kSquaredRelu: return rows_of([](float value) { return value <= 0 ? 0.0F : value * value; });
      default: return rows_of([](float value) { return std::tanh(value); });
    }
  }
  rf_gelu_args args = {};
  args.struct_size = sizeof args;
  args.dtype = dtype;
  args.form = *form;
  args.rows = rows;
  args.columns = columns;
  args.x = args.y = x;
  args.factor = factor;
  args.x_stride = args.y_stride = args.factor_stride = stride;
  check_status(rf_gelu_forward(&args));
}

constexpr int64_t kGates = 32;  // of a group

bool has_fused_gate(Precision precision, Activation activation, int64_t columns) {
  return precision != Precision::kInt8 && form_of(activation) && columns % kGates == 0;
}

template <class T>
void order_gates(int64_t columns, int64_t width, const T* from, T* to) {
  const int64_t group = kGates * width, up = columns * width;
  for (int64_t i = 0; i < up; i += group, to += 2 * group) {
    std::copy_n(from + i, group, to);
    std::copy_n(from + up + i, group, to + group);
  }
}
template void order_gates(int64_t columns, int64_t width, const float* from, float* to);
template void order_gates(int64_t columns, int64_t width, const void* const* from, const void** to);

void multiply_by_gate(Activation activation, rf_dtype dtype, int64_t rows, int64_t columns, void* x) {
  activate(activation, dtype, rows, columns, x, 2 * columns, static_cast<char*>(x) + columns * bytes_of(dtype));
}

void scale_and_cap(rf_dtype dtype, int64_t count, double factor, double cap, void* x) {
  if (factor == 1 && cap == 0) return;
  const auto scale = static_cast<float>(factor), most = static_cast<float>(cap);
  if (cap == 0) return update(dtype, count, x, x, [=](float value, float) { return value * scale; });
  update(dtype, count, x, x, [=](float value, float) { return most * std::tanh(value * scale / most); });
}

void add(rf_dtype dtype, int64_t count, const void* x, void* y) {
  update(dtype, count, x, y, [](float sum, float value) { return sum + value; });
}

void rotate_rows(rf_dtype dtype, const rf_attention_args& terms, const rf_attention_rotation& rotation, int64_t tokens,
                 int64_t heads, int64_t stride, void* x) {
  rf_rope_rows_args args = {};
  args.struct_size = sizeof args;
  args.dtype = dtype;
  args.layout = terms.layout;
  args.direction = RF_ROPE_FORWARD;
  args.batch = 1;
  args.tokens = tokens;
  args.heads = heads;
  args.head_dim = terms.head_dim;
  args.x = args.y = x;
  args.x_stride_t = args.y_stride_t = stride;
  args.x_stride_b = args.y_stride_b = tokens * stride;
  args.x_stride_h = args.y_stride_h = terms.head_dim;
  args.num_freqs = args.row_stride_t = rotation.pairs;
  args.cos = rotation.cos;
  args.sin = rotation.sin;
  check_status(rf_rope_rotate(&args));
}

void note_largest(int64_t rows, const float* x, std::vector<float>& largest) {
  const size_t columns = largest.size();
  for (int64_t r = 0; r < rows; ++r, x += columns) {
    for (size_t t = 0; t < columns; ++t) largest[t] = std::max(largest[t], std::abs(x[t]));
  }
}

void from_floats(rf_dtype dtype, int64_t count, const float* from, void* to) {
  if (dtype == RF_F32) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  auto* rounded = static_cast<uint16_t*>(to);
  in_parts(count, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) rounded[i] = bf16_of_float(from[i]);
  });
}

void to_floats(rf_dtype dtype, int64_t count, const void* from, float* to) {
  if (dtype == RF_F32) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  const auto* values = static_cast<const uint16_t*>(from);
  for (int64_t i = 0; i < count; ++i) to[i] = float_of_bf16(values[i]);
}

}  // namespace rf::engine
