// Rows of a rotation (rotary_rows.h).
#include "rotary_rows.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_unique.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <utility>

#include "rf/io/error.h"
#include "rf/ops/ops.h"
#include "rotary_float32.h"

namespace rf::nn {

RotaryFrequencies::RotaryFrequencies(RopeSpec spec) : spec_(std::move(spec)), initial_(of_length(0)) {}

TokenFrequencies RotaryFrequencies::of_length(int64_t sequence_length) const {
  TokenFrequencies found{.hi = {}, .lo = {}, .scale = spec_.attention_factor, .precision = spec_.precision};
  if (spec_.precision == RopePrecision::kFloat32) {
    found.hi = float32_frequencies(spec_, sequence_length);
  } else {
    const RopeFrequencies theta = frequencies(spec_, sequence_length);
    found.hi = at::tensor(theta.hi, at::kDouble);
    found.lo = at::tensor(theta.lo, at::kDouble);
  }
  return found;
}

TokenFrequencies RotaryFrequencies::of(const at::Tensor& end) const {
  if (!spec_.changes_with_length() || end.numel() == 0) return initial_;
  // Lengths that share their frequencies become one: those within the training length, and for longrope those beyond.
  // Where a row of tokens is one sequence, its length is stored once and its frequencies need no more.
  const at::Tensor end_of_row = end.stride(1) == 0 ? end.narrow(1, 0, 1) : end;
  at::Tensor length = end_of_row.clamp_min(spec_.trained_length);
  if (spec_.type == RopeType::kLongrope) length = length.clamp_max(spec_.trained_length + 1);
  const auto [lengths, index] = at::_unique(length, /*sorted=*/true, /*return_inverse=*/true);
  if (lengths.size(0) == 1) return of_length(lengths[0].item<int64_t>());
  std::vector<at::Tensor> hi, lo;
  for (int64_t i = 0; i < lengths.size(0); ++i) {
    const TokenFrequencies found = of_length(lengths[i].item<int64_t>());
    hi.push_back(found.hi);
    lo.push_back(found.lo);
  }
  const auto by_token = [&index = index](const std::vector<at::Tensor>& rows) {
    return at::stack(rows).index_select(0, index.flatten()).unflatten(0, index.sizes());
  };
  TokenFrequencies found = initial_;
  found.hi = by_token(hi);
  if (found.lo.defined()) found.lo = by_token(lo);
  return found;
}

Rotation rotation_rows(const at::Tensor& ids_BT, const TokenFrequencies& frequencies, at::ScalarType dtype) {
  const at::ScalarType rows = ops::row_dtype(dtype);
  const bool by_token = frequencies.hi.dim() == 3 && frequencies.hi.size(0) > 1;
  const at::Tensor ids = by_token ? ids_BT.expand({frequencies.hi.size(0), ids_BT.size(1)}) : ids_BT;
  if (frequencies.precision == RopePrecision::kFloat32) {
    const at::Tensor angle = ids.unsqueeze(-1).to(at::kFloat) * frequencies.hi;
    return {(angle.cos() * frequencies.scale).to(rows), (angle.sin() * frequencies.scale).to(rows)};
  }
  auto [cos, sin] = ops::rope_table(ids, frequencies.hi, frequencies.lo, frequencies.scale, rows);
  return {cos, sin};
}

void require_one_axis(const char* where, const Positions& positions) {
  for (const at::Tensor& axes : {positions.query.axes, positions.key.axes}) {
    if (axes.defined()) fail(where, "positions must be [tokens] or [batch, tokens], got {} axes", axes.size(2));
  }
}

std::string read_layout(io::StrictObject& options, const char* fallback) {
  return options.choice<std::string>("layout", fallback, {{"pairs", "pairs"}, {"halves", "halves"}});
}

std::vector<std::string> rotary_keys(const char* layout) {
  return {std::string("layout = ") + layout,
          "rope_theta = 10000",
          "partial_rotary_factor = 1",
          "rope_parameters or rope_scaling = {\"rope_type\": \"default\"}",
          "original_max_position_embeddings (in rope_parameters or next to it)",
          "precision = exact"};
}

}  // namespace rf::nn
