// Tables of a call in the form that the kernels read (see the header).
#include "attention/problem.h"

#include <algorithm>

#include "common/target.h"

namespace rf::core {
namespace {

// The caller's rows, or copies padded with zeros if rows are not whole vectors.
TermTable padded_table(const rf_attention_table& given, std::vector<float>& copies) {
  if (given.rows == nullptr) return {};
  const auto* rows = static_cast<const float*>(given.rows);
  TermTable table{rows, given.lo, given.hi, given.heads, padded(given.width)};
  if (table.stride == given.width) return table;
  const int64_t count = given.heads * table.row_count();
  copies.assign(static_cast<size_t>(count * table.stride), 0.0f);
  for (int64_t r = 0; r < count; ++r)
    std::copy_n(rows + r * given.width, given.width, copies.data() + r * table.stride);
  table.rows = copies.data();
  return table;
}

TermTable one_number_table(const rf_attention_table& given) {
  return {static_cast<const float*>(given.rows), given.lo, given.hi, given.heads, 1};
}

}  // namespace

AttentionProblem::AttentionProblem(const rf_attention_args& x)
    : args(x),
      width(padded(x.head_dim)),
      inner(x.position_query == nullptr ? width : 2 * width),
      value_width(padded(x.value_dim)),
      group(x.heads / x.key_heads),
      key_table(padded_table(x.key_table, padded_rows[0])),
      query_table(padded_table(x.query_table, padded_rows[1])),
      value_table(padded_table(x.value_table, padded_rows[2])),
      bias(one_number_table(x.bias)),
      gate(x.gate.width == 1 ? one_number_table(x.gate) : padded_table(x.gate, padded_rows[3])),
      rotation_heads{std::max<int64_t>(x.query_rotation_heads, 1), std::max<int64_t>(x.key_rotation_heads, 1),
                     std::max<int64_t>(x.value_rotation_heads, 1)},
      all_queries(x.queries),
      all_keys(x.keys),
      amx(use_amx()) {
  if (query_table.rows == nullptr) return;
  const int64_t rows = query_table.row_count();
  query_column_stride = rows + kRowFloats;
  query_column_rows.assign(static_cast<size_t>(query_table.heads * width * query_column_stride), 0.0f);
  query_columns = query_column_rows.data();
#pragma omp parallel for collapse(2) schedule(static)
  for (int64_t head = 0; head < query_table.heads; ++head) {
    for (int64_t d = 0; d < width; ++d) {
      float* to = query_column_rows.data() + (head * width + d) * query_column_stride;
      const float* from = query_table.rows + head * rows * width + d;
      for (int64_t r = 0; r < rows; ++r) to[r] = from[r * width];
    }
  }
}

AttentionProblem::AttentionProblem(const AttentionProblem& whole, const rf_attention_args& part, int64_t element)
    : args(part),
      width(whole.width),
      inner(whole.inner),
      value_width(whole.value_width),
      group(whole.group),
      key_table(whole.key_table),
      query_table(whole.query_table),
      value_table(whole.value_table),
      bias(whole.bias),
      gate(whole.gate),
      query_columns(whole.query_columns),
      query_column_stride(whole.query_column_stride),
      rotation_heads{whole.rotation_heads[0], whole.rotation_heads[1], whole.rotation_heads[2]},
      all_queries(whole.all_queries),
      all_keys(whole.all_keys),
      first_element(element),
      amx(whole.amx) {}

}  // namespace rf::core
