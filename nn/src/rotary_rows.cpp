// Rows of rotations and sinusoids as tensors (rotary_rows.h).
#include "rotary_rows.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <utility>

#include "known_values.h"
#include "rf/io/error.h"
#include "rf/nn/devices.h"
#include "rf/ops/ops.h"

namespace rf::nn {

namespace {

// By torch, as in transformers.
void torch_cos_sin(const float* angles, int64_t count, float* cos, float* sin) {
  const at::Tensor from = at::from_blob(const_cast<float*>(angles), {count}, at::kFloat);
  at::Tensor to_cos = at::from_blob(cos, {count}, at::kFloat), to_sin = at::from_blob(sin, {count}, at::kFloat);
  at::cos_out(to_cos, from);
  at::sin_out(to_sin, from);
}

int64_t highest_end(const TokenPositions& tokens) {
  return tokens.end.numel() == 0 ? 0 : tokens.end.max().item<int64_t>();
}

template <class T>
Rotation filled(const RotaryRows& rows, RotarySide side, const TokenPositions& tokens, at::ScalarType dtype) {
  // If all rows of a batch have the same positions, they have the same rotations, unless their sequences differ.
  const bool by_sequence = rows.changes_with_length() && rows.depends_on_sequence(highest_end(tokens));
  const int64_t length = tokens.ids.size(1);
  const int64_t batch = std::max(tokens.ids.size(0), by_sequence ? tokens.end.size(0) : 1);
  const auto whole = [&](const at::Tensor& given) { return given.expand({batch, length}).contiguous(); };
  const at::Tensor ids = whole(tokens.ids);
  at::Tensor first, end, axes;
  RotaryTokens of{.count = ids.numel(), .ids = cpu_data<int64_t>(ids, "positions")};
  if (by_sequence) {
    first = whole(tokens.first);
    end = whole(tokens.end);
    of.first = cpu_data<int64_t>(first, "positions");
    of.end = cpu_data<int64_t>(end, "positions");
  }
  if (tokens.axes.defined()) {
    axes = tokens.axes.expand({batch, length, tokens.axes.size(2)}).contiguous();
    of.axes = cpu_data<int64_t>(axes, "positions");
  }
  const Rotation result{.cos = at::empty({batch, length, rows.pairs()}, dtype),
                        .sin = at::empty({batch, length, rows.pairs()}, dtype)};
  at::get_num_threads();  // core uses as many
  rows.fill(side, of, result.cos.mutable_data_ptr<T>(), result.sin.mutable_data_ptr<T>());
  return result;
}

template <class Position>
void fill_sinusoids(const at::Tensor& positions, int64_t width, SinusoidLayout layout, at::Tensor& rows) {
  const auto* from = cpu_data<Position>(positions, "positions");
  if (rows.scalar_type() == at::kDouble) {
    rf::sinusoid(from, positions.numel(), width, layout, rows.mutable_data_ptr<double>());
  } else {
    rf::sinusoid(from, positions.numel(), width, layout, rows.mutable_data_ptr<float>());
  }
}

// With precision float32, torch computes frequencies, cosines and sines.
RotaryRows make_rotary_rows(RotaryForm form, io::StrictObject& options, const EncodingShape& shape) {
  RotarySettings settings = read_rotary(form, options, shape.head_dim, shape.max_position_embeddings);
  if (settings.spec.precision == RopePrecision::kExact) return RotaryRows(std::move(settings));
  const auto by_torch = [spec = settings.spec](int64_t sequence_length) {
    const at::Tensor found = float32_frequencies(spec, sequence_length).contiguous();
    const auto* begin = cpu_data<float>(found, "frequencies");
    return std::vector<float>(begin, begin + found.numel());
  };
  return RotaryRows(std::move(settings), by_torch, torch_cos_sin);
}

}  // namespace

RotaryEncoding::RotaryEncoding(RotaryForm form, io::StrictObject& options, const EncodingShape& shape)
    : name_(options.path()), rows_(make_rotary_rows(form, options, shape)) {}

Shared RotaryEncoding::compute_shared(const Positions& positions, at::ScalarType dtype) {
  check_positions(positions, dtype);
  return {.terms = rotary_terms(rows_, positions, dtype)};
}

void RotaryEncoding::check_positions(const Positions& positions, at::ScalarType) const {
  require_one_axis(name_, positions);
}

namespace {

// By the operator, on the device of the model: packed rows have as many angles as they have tokens and pairs.
Rotation rows_on_device(const RotaryRows& rows, const TokenPositions& tokens, at::ScalarType dtype) {
  const auto numbers = [&](const std::vector<double>& x) {
    return on_device(at::tensor(x, at::kDouble), tokens.device);
  };
  const RopeFrequencies& theta = rows.initial();
  auto [cos, sin] = ops::rope_table(on_device(tokens.ids, tokens.device), numbers(theta.hi), numbers(theta.lo),
                                    rows.settings().spec.attention_factor, ops::row_dtype(dtype));
  return {cos, sin};
}

}  // namespace

Rotation rotation_rows(const RotaryRows& rows, RotarySide side, const TokenPositions& tokens, at::ScalarType dtype) {
  const OutsideTransforms constant;
  if (tokens.device.is_cuda() && rows.is_plain() && !tokens.axes.defined()) return rows_on_device(rows, tokens, dtype);
  if (dtype == at::kDouble) return filled<double>(rows, side, tokens, dtype);
  return filled<float>(rows, side, tokens, at::kFloat);
}

Rotation trained_rotation_rows(const RopeSpec& spec, const at::Tensor& freqs, const at::Tensor& ids,
                               at::ScalarType dtype) {
  const at::ScalarType type = ops::row_dtype(dtype);
  if (spec.precision == RopePrecision::kFloat32) {
    const at::Tensor angle = ids.unsqueeze(-1).to(at::kFloat) * freqs.to(at::kFloat);
    return {(angle.cos() * spec.attention_factor).to(type), (angle.sin() * spec.attention_factor).to(type)};
  }
  auto [cos, sin] = ops::rope_table(ids, freqs.to(at::kDouble), {}, spec.attention_factor, type);
  return {cos, sin};
}

Terms rotary_terms(const RotaryRows& rows, const Positions& positions, at::ScalarType dtype) {
  Terms terms;
  terms.layout = name(rows.settings().layout);
  terms.query = rotation_rows(rows, RotarySide::kQuery, positions.query, dtype);
  const bool same = positions.same_tokens() && !rows.sides_differ();
  terms.key = same ? terms.query : rotation_rows(rows, RotarySide::kKey, positions.key, dtype);
  return terms;
}

at::Tensor sinusoid(const at::Tensor& positions, int64_t width, SinusoidLayout layout, at::ScalarType dtype) {
  const OutsideTransforms constant;
  const at::Tensor whole = positions.contiguous();
  std::vector<int64_t> shape = positions.sizes().vec();
  shape.push_back(width);
  at::Tensor rows = at::empty(shape, ops::row_dtype(dtype));
  at::get_num_threads();  // core uses as many
  whole.scalar_type() == at::kDouble ? fill_sinusoids<double>(whole, width, layout, rows)
                                     : fill_sinusoids<int64_t>(whole, width, layout, rows);
  return rows;
}

void require_one_axis(std::string_view where, const Positions& positions) {
  for (const at::Tensor& axes : {positions.query.axes, positions.key.axes}) {
    if (axes.defined()) fail(where, "positions must be [tokens] or [batch, tokens], got {} axes", axes.size(2));
  }
}

std::vector<std::string> rotary_keys(const char* layout, std::initializer_list<const char*> more) {
  std::vector<std::string> keys = {std::string("layout = ") + layout,
                                   "rope_theta = 10000",
                                   "partial_rotary_factor = 1",
                                   "rope_parameters or rope_scaling = {\"rope_type\": \"default\"}",
                                   "original_max_position_embeddings (in rope_parameters or next to it)",
                                   "precision = exact"};
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

}  // namespace rf::nn
