// Attention in float64 (see the header).
#include "exact_attention.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "elements.h"
#include "layers.h"
#include "rf/attention_terms.h"
#include "status.h"

namespace rf::engine {

namespace {

// A view [batch, tokens, heads, columns] of elements.
struct View {
  int64_t batch, tokens, columns;
  int64_t stride_b, stride_t;
};

double element(rf_dtype dtype, const void* data, int64_t at) {
  if (dtype == RF_F32) return static_cast<const float*>(data)[at];
  return float_of_bf16(static_cast<const uint16_t*>(data)[at]);
}

// What a head's arguments are in float64.
class HeadCall {
 public:
  HeadCall(const rf_attention_args& call, int64_t head) : call_(call), head_(head) { args_ = call; }

  rf_status run() {
    args_.dtype = RF_F64;
    args_.heads = args_.key_heads = 1;
    const int64_t key_head = head_ / (call_.heads / call_.key_heads);
    args_.q = rows(call_.q, head_ * call_.q_stride_h, query_view());
    args_.k = rows(call_.k, key_head * call_.k_stride_h, key_view(call_.head_dim, call_.k_stride_b, call_.k_stride_t));
    args_.v = rows(call_.v, key_head * call_.v_stride_h, key_view(call_.value_dim, call_.v_stride_b, call_.v_stride_t));
    args_.q_stride_t = args_.k_stride_t = call_.head_dim;
    args_.v_stride_t = args_.out_stride_t = call_.value_dim;
    args_.q_stride_b = call_.queries * call_.head_dim;
    args_.k_stride_b = call_.keys * call_.head_dim;
    args_.v_stride_b = call_.keys * call_.value_dim;
    args_.out_stride_b = call_.queries * call_.value_dim;
    std::vector<double> out(static_cast<size_t>(call_.batch * args_.out_stride_b));
    args_.out = out.data();
    if (args_.mask != nullptr) args_.mask += head_ * call_.mask_stride_h;
    set_terms();
    const rf_status status = rf_attention_forward(&args_);
    if (status == RF_OK) write(out);
    return status;
  }

 private:
  View query_view() const { return {call_.batch, call_.queries, call_.head_dim, call_.q_stride_b, call_.q_stride_t}; }
  View key_view(int64_t columns, int64_t stride_b, int64_t stride_t) const {
    return {call_.batch, call_.keys, columns, stride_b, stride_t};
  }

  const double* rows(const void* data, int64_t offset, const View& view) {
    std::vector<double>& to = kept_.emplace_back();
    to.reserve(static_cast<size_t>(view.batch * view.tokens * view.columns));
    for (int64_t b = 0; b < view.batch; ++b) {
      for (int64_t t = 0; t < view.tokens; ++t) {
        const int64_t begin = offset + b * view.stride_b + t * view.stride_t;
        for (int64_t i = 0; i < view.columns; ++i) to.push_back(element(call_.dtype, data, begin + i));
      }
    }
    return to.data();
  }

  const double* floats(const void* data, int64_t begin, int64_t count) {
    const auto* values = static_cast<const float*>(data) + begin;
    return kept_.emplace_back(values, values + count).data();
  }

  void set(rf_attention_rotation& rotation, int64_t tokens) {
    if (rotation.cos == nullptr) return;
    const int64_t count = rotation.batch * tokens * rotation.pairs;  // the engine's rotations are shared by the heads
    rotation.cos = floats(rotation.cos, 0, count);
    rotation.sin = floats(rotation.sin, 0, count);
  }
  void set(rf_attention_table& table) {
    if (table.rows == nullptr) return;
    const int64_t count = (table.hi - table.lo + 1) * table.width;
    table.rows = floats(table.rows, table.heads == 1 ? 0 : head_ * count, count);
    table.heads = 1;
  }
  void set(const void*& numbers, int64_t count) {
    if (numbers != nullptr) numbers = floats(numbers, head_ * count, count);
  }

  // Numbers of one head: contiguous [batch, 1, rows, keys], where rows is 1 for numbers by key.
  void set(rf_attention_scores& scores, int64_t rows) {
    if (scores.numbers == nullptr) return;
    const rf_attention_scores given = scores;
    std::vector<double>& to = kept_.emplace_back();
    for (int64_t b = 0; b < given.batch; ++b) {
      for (int64_t t = 0; t < rows; ++t) {
        const float* from = static_cast<const float*>(given.numbers) + (given.batch == 1 ? 0 : b * given.stride_b) +
                            (given.heads == 1 ? 0 : head_ * given.stride_h) + t * given.stride_t;
        to.insert(to.end(), from, from + call_.keys);
      }
    }
    scores = {to.data(), given.batch, 1, rows * call_.keys, 0, given.stride_t == 0 ? 0 : call_.keys};
  }

  void set_terms() {
    const int64_t row_elements = call_.positions * call_.head_dim;
#define RF_ROTATION_TO_F64(name, symbol, side) set(args_.name, tokens_of(#side));
#define RF_TABLE_TO_F64(name, ...) set(args_.name);
#define RF_NUMBERS_TO_F64(name, symbol, width) set(args_.name, width_of(#width));
#define RF_PAIR_TO_F64(query_name, query_symbol, key_name, key_symbol) \
  set(args_.query_name, row_elements);                                 \
  set(args_.key_name, row_elements);
#define RF_SCORES_TO_F64(name, symbol, rows) set(args_.name, rows_of(#rows));
    RF_ATTENTION_TERMS(RF_ROTATION_TO_F64, RF_TABLE_TO_F64, RF_NUMBERS_TO_F64, RF_PAIR_TO_F64, RF_SCORES_TO_F64)
#undef RF_ROTATION_TO_F64
#undef RF_TABLE_TO_F64
#undef RF_NUMBERS_TO_F64
#undef RF_PAIR_TO_F64
#undef RF_SCORES_TO_F64
  }
  int64_t tokens_of(std::string_view side) const {
    return side == "Query" ? call_.queries : call_.keys;
  }
  int64_t rows_of(std::string_view rows) const {
    return rows == "One" ? 1 : call_.queries;
  }
  int64_t width_of(std::string_view width) const {
    return width == "One" ? 1 : call_.head_dim;
  }

  void write(const std::vector<double>& out) const {
    const double* from = out.data();
    for (int64_t b = 0; b < call_.batch; ++b) {
      for (int64_t t = 0; t < call_.queries; ++t) {
        const int64_t to = b * call_.out_stride_b + t * call_.out_stride_t + head_ * call_.out_stride_h;
        for (int64_t i = 0; i < call_.value_dim; ++i, ++from) {
          if (call_.dtype == RF_F32) {
            static_cast<float*>(call_.out)[to + i] = static_cast<float>(*from);
          } else {
            static_cast<uint16_t*>(call_.out)[to + i] = bf16_of_float(static_cast<float>(*from));
          }
        }
      }
    }
  }

  const rf_attention_args& call_;
  int64_t head_;
  rf_attention_args args_;
  std::vector<std::vector<double>> kept_;
};

}  // namespace

void attend_exactly(const rf_attention_args& args) {
  check_status(rf_attention_check(&args));
  std::vector<rf_status> statuses(static_cast<size_t>(args.heads), RF_OK);
#pragma omp parallel for schedule(dynamic)
  for (int64_t h = 0; h < args.heads; ++h) {
    try {
      statuses[static_cast<size_t>(h)] = HeadCall(args, h).run();
    } catch (const std::bad_alloc&) {
      statuses[static_cast<size_t>(h)] = RF_OUT_OF_MEMORY;
    }
  }
  const auto failed = std::ranges::find_if(statuses, [](rf_status status) { return status != RF_OK; });
  if (failed != statuses.end()) check_status(*failed);
}

}  // namespace rf::engine
