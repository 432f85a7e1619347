// Tables of a call in the form that the kernels read (see the header).
#include "attention_problem.h"

#include <algorithm>

#include "target.h"

namespace rf::core {
namespace {

// The caller's rows, or copies with zeros at their ends where rows are no whole vectors.
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

}  // namespace

AttentionProblem::AttentionProblem(const rf_attention_args& x)
    : args(x),
      width(padded(x.head_dim)),
      inner(x.a == nullptr ? width : 2 * width),
      value_width(padded(x.value_dim)),
      group(x.heads / x.key_heads),
      table_k(padded_table(x.table_k, padded_rows[0])),
      table_q(padded_table(x.table_q, padded_rows[1])),
      table_v(padded_table(x.table_v, padded_rows[2])),
      bias{static_cast<const float*>(x.bias.rows), x.bias.lo, x.bias.hi, x.bias.heads, 1},
      log_sum_stride(x.queries),
      amx(use_amx()) {
  if (table_q.rows == nullptr) return;
  const int64_t rows = table_q.row_count();
  query_column_stride = rows + kRowFloats;
  query_column_rows.assign(static_cast<size_t>(table_q.heads * width * query_column_stride), 0.0f);
  query_columns = query_column_rows.data();
#pragma omp parallel for collapse(2) schedule(static)
  for (int64_t head = 0; head < table_q.heads; ++head) {
    for (int64_t d = 0; d < width; ++d) {
      float* to = query_column_rows.data() + (head * width + d) * query_column_stride;
      const float* from = table_q.rows + head * rows * width + d;
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
      table_k(whole.table_k),
      table_q(whole.table_q),
      table_v(whole.table_v),
      bias(whole.bias),
      query_columns(whole.query_columns),
      query_column_stride(whole.query_column_stride),
      log_sum_stride(whole.log_sum_stride),
      first_element(element),
      amx(whole.amx) {}

}  // namespace rf::core
