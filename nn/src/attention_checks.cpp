// What attention requires of its arguments (rf/nn/attention.h, rf/ops/terms.h). Every failure names the rule and the
// numbers.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "attention_paths.h"
#include "rf/io/error.h"

namespace rf::nn {

namespace {

bool is_1_or(int64_t size, int64_t number) {
  return size == 1 || size == number;
}

bool has_shape(const at::Tensor& x, const std::vector<int64_t>& shape) {
  return x.sizes().vec() == shape;
}

void check_side(const char* name, const at::Tensor& ids_BT, const at::Tensor& x_BTHD) {
  if (!is_1_or(ids_BT.size(0), x_BTHD.size(0)) || ids_BT.size(1) != x_BTHD.size(1)) {
    fail("attention", "{} positions must be [1 or {}, {}], got {}", name, x_BTHD.size(0), x_BTHD.size(1),
         ids_BT.sizes().vec());
  }
}

void check_mask(const at::Tensor& attend, const std::vector<int64_t>& scores) {
  if (!attend.defined()) return;
  const int64_t missing = 4 - attend.dim();
  for (int64_t i = 0; i < attend.dim(); ++i) {
    if (!is_1_or(attend.size(i), scores[missing + i])) {
      fail("attention", "mask must broadcast to [batch, heads, queries, keys] = {}, got {}", scores,
           attend.sizes().vec());
    }
  }
}

void check_numbers(const char* name, const at::Tensor& x) {
  if (at::isFloatingType(x.scalar_type())) return;
  fail("attention", "{} must be floating-point numbers, got {}", name, toString(x.scalar_type()));
}

void check_rotation(const char* name, const Rotation& rotation, const at::Tensor& x_BTHD) {
  if (!rotation.defined()) return;
  const at::Tensor &cos = rotation.cos, &sin = rotation.sin;
  const bool fits = cos.dim() == 3 && is_1_or(cos.size(0), x_BTHD.size(0)) && cos.size(1) == x_BTHD.size(1) &&
                    2 * cos.size(2) <= x_BTHD.size(3);
  if (!fits || !sin.defined() || sin.sizes() != cos.sizes()) {
    fail("attention", "cos and sin of {} must be [1 or {}, {}, at most {}], got {} and {}", name, x_BTHD.size(0),
         x_BTHD.size(1), x_BTHD.size(3) / 2, cos.sizes().vec(),
         sin.defined() ? sin.sizes().vec() : std::vector<int64_t>());
  }
  check_numbers(name, cos);
  check_numbers(name, sin);
}

// width: of a row; none: rows are numbers.
enum class Width { kExact, kExactOrOne };
void check_table(const char* name, const DistanceTable& table, int64_t heads, std::optional<int64_t> width,
                 Width rule = Width::kExact) {
  if (!table.defined()) return;
  const auto [rows, lo, hi] = table;
  check_numbers(name, rows);
  if (lo > hi) fail("attention", "the window of {} must be lo <= hi, got ({}, {})", name, lo, hi);
  const uint64_t last = static_cast<uint64_t>(hi) - static_cast<uint64_t>(lo);
  if (last >= static_cast<uint64_t>(kMaxDistanceRows)) {
    fail("attention", "the window of {} must span at most 2^24 distances, got ({}, {})", name, lo, hi);
  }
  const int64_t count = static_cast<int64_t>(last) + 1;
  const bool fits = rows.dim() == (width ? 3 : 2) && is_1_or(rows.size(0), heads) && rows.size(1) == count &&
                    (!width || rows.size(2) == *width || (rule == Width::kExactOrOne && rows.size(2) == 1));
  if (fits) return;
  const std::string wanted = !width ? "" : fmt::format(", {}{}", rule == Width::kExactOrOne ? "1 or " : "", *width);
  fail("attention", "{} with window ({}, {}) must be [1 or {}, {}{}], got {}", name, lo, hi, heads, count, wanted,
       rows.sizes().vec());
}

void check_shape(const char* name, const at::Tensor& x, const std::vector<int64_t>& shape) {
  if (!x.defined()) return;
  if (!has_shape(x, shape)) fail("attention", "{} must be {}, got {}", name, shape, x.sizes().vec());
  check_numbers(name, x);
}

void check_position_tables(const Terms& terms, int64_t heads, int64_t head_dim, AttentionContext::State& state) {
  const at::Tensor &a = terms.position_query_HPD, &c = terms.position_key_HPD;
  if (!a.defined() && !c.defined()) return;
  if (!a.defined() || !c.defined()) {
    fail("attention", "position_query and position_key must be set together, got {} alone",
         a.defined() ? "position_query" : "position_key");
  }
  const int64_t rows = a.dim() == 3 ? a.size(1) : 0;
  check_shape("position_query", a, {heads, rows, head_dim});
  check_shape("position_key", c, {heads, rows, head_dim});
  const auto [low, high] = state.range();
  if (low < 0 || high >= rows) {
    fail("attention", "positions must be in 0..{}, the rows of position_query and position_key, got {}", rows - 1,
         low < 0 ? low : high);
  }
}

// Terms that were made for other positions would be read at the wrong rows.
void check_positions_of_terms(const char* name, const at::Tensor& of_terms_BT, const at::Tensor& ids_BT) {
  if (!of_terms_BT.defined() || of_terms_BT.is_same(ids_BT)) return;
  if (of_terms_BT.size(1) != ids_BT.size(1) || (!is_1_or(of_terms_BT.size(0), ids_BT.size(0)) && ids_BT.size(0) != 1)) {
    fail("attention", "terms must be made for the {} positions of the call, {}, got terms for {}", name,
         ids_BT.sizes().vec(), of_terms_BT.sizes().vec());
  }
  const at::Tensor differ = of_terms_BT.ne(ids_BT).nonzero();
  if (differ.size(0) == 0) return;
  const int64_t row = differ[0][0].item<int64_t>(), token = differ[0][1].item<int64_t>();
  const auto at_place = [&](const at::Tensor& x_BT) {
    return x_BT[std::min(row, x_BT.size(0) - 1)][token].item<int64_t>();
  };
  fail("attention", "terms must be made for the {} positions of the call, {} at row {}, token {}, got terms for {}",
       name, at_place(ids_BT), row, token, at_place(of_terms_BT));
}

void check_range(AttentionContext::State& state) {
  const auto [low, high] = state.range();
  if (low < -kMaxPosition || high > kMaxPosition) {
    fail("attention", "positions must be within 2^53, got {}", low < -kMaxPosition ? low : high);
  }
}

}  // namespace

void check_data(const at::Tensor& q_BTHD, const at::Tensor& k_BSHD, const at::Tensor& v_BSHD) {
  struct Named {
    const char* name;
    const at::Tensor& x;
  };
  for (const auto& [name, x] : {Named{"q", q_BTHD}, Named{"k", k_BSHD}, Named{"v", v_BSHD}}) {
    if (x.dim() != 4) fail("attention", "{} must be [batch, tokens, heads, head_dim], got {}", name, x.sizes().vec());
    if (!at::isFloatingType(x.scalar_type()) || x.scalar_type() != q_BTHD.scalar_type()) {
      fail("attention", "q, k and v must have one floating dtype, got {} and {}", toString(q_BTHD.scalar_type()),
           toString(x.scalar_type()));
    }
    if (x.size(0) != q_BTHD.size(0)) {
      fail("attention", "q, k and v must have one batch size, got {} and {}", q_BTHD.size(0), x.size(0));
    }
  }
  if (k_BSHD.size(1) != v_BSHD.size(1) || k_BSHD.size(2) != v_BSHD.size(2)) {
    fail("attention", "k and v must have the same tokens and heads, got {} and {}", k_BSHD.sizes().vec(),
         v_BSHD.sizes().vec());
  }
  if (k_BSHD.size(3) != q_BTHD.size(3) || q_BTHD.size(3) == 0) {
    fail("attention", "q and k must have the same head_dim >= 1, got {} and {}", q_BTHD.size(3), k_BSHD.size(3));
  }
  if (k_BSHD.size(2) == 0 || q_BTHD.size(2) % k_BSHD.size(2) != 0) {
    fail("attention", "the heads of q must be a multiple of those of k, got {} and {}", q_BTHD.size(2), k_BSHD.size(2));
  }
}

void check_attention(const at::Tensor& q_BTHD, const at::Tensor& k_BSHD, const at::Tensor& v_BSHD, const Terms& terms,
                     AttentionContext::State& state) {
  check_data(q_BTHD, k_BSHD, v_BSHD);
  check_side("query", state.positions.query.ids, q_BTHD);
  check_side("key", state.positions.key.ids, k_BSHD);
  check_positions_of_terms("query", terms.query_positions, state.positions.query.ids);
  check_positions_of_terms("key", terms.key_positions, state.positions.key.ids);
  const int64_t heads = q_BTHD.size(2), head_dim = q_BTHD.size(3), value_dim = v_BSHD.size(3);
  check_mask(state.given_attend, {q_BTHD.size(0), heads, q_BTHD.size(1), k_BSHD.size(1)});
  if (terms.layout != "pairs" && terms.layout != "halves") {
    fail("attention", "layout must be pairs or halves, got {}", terms.layout);
  }
  check_rotation("query", terms.query, q_BTHD);
  check_rotation("key", terms.key, k_BSHD);
  check_rotation("value", terms.value, v_BSHD);
  check_shape("content_bias", terms.content_bias_HD, {heads, head_dim});
  check_shape("position_bias", terms.position_bias_HD, {heads, head_dim});
  check_table("key_table", terms.key_table, heads, head_dim);
  check_table("query_table", terms.query_table, heads, head_dim);
  check_table("value_table", terms.value_table, heads, value_dim);
  check_table("bias", terms.bias, heads, std::nullopt);
  check_table("gate", terms.gate, heads, head_dim, Width::kExactOrOne);
  check_range(state);
  check_position_tables(terms, heads, head_dim, state);
  check_shape("reset_row", terms.reset_row_H, {heads});
  check_shape("reset_col", terms.reset_col_H, {heads});
  if (!std::isfinite(terms.scale.value_or(0))) fail("attention", "scale must be finite, got {}", *terms.scale);
}

}  // namespace rf::nn
