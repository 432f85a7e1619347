// Rows, tasks and threads of an int8 product (see the header).
//
// Rows of x are quantised once, in the work space of the calling thread, and then read by tasks of a tile of rows by a
// run of panels. Nothing in the parallel region allocates or throws.
#include "linear/gemm_int8.h"

#include <omp.h>

#include <algorithm>
#include <cmath>

#include "common/element.h"
#include "common/error.h"
#include "common/parallel_tasks.h"
#include "common/scratch.h"
#include "linear/gemm.h"
#include "linear/gemm_int8_kernel.h"

namespace rf::core {
namespace {

constexpr int64_t kGroupRows = 4096;  // quantised together before they are multiplied: bounds the work space

// Rows first .. first + count - 1 of a call as bytes.
struct QuantizedRows {
  const rf_linear_args& args;
  const Int8Weight& weight;
  int64_t first, count;
  Int8RowScale* scales;
  uint8_t* bytes;

  // The extra line keeps rows of a power of two from meeting in the same cache lines.
  static int64_t row_bytes(const Int8Weight& weight) { return weight.units() * row_unit_bytes() + kDepthStep; }
  static int64_t space(const Int8Weight& weight, int64_t rows) {
    return rows * (row_bytes(weight) + int64_t{sizeof(Int8RowScale)});
  }

  QuantizedRows(const rf_linear_args& call, const Int8Weight& packed, int64_t begin, int64_t rows, void* memory)
      : args(call),
        weight(packed),
        first(begin),
        count(rows),
        scales(reinterpret_cast<Int8RowScale*>(static_cast<uint8_t*>(memory) + rows * row_bytes(packed))),
        bytes(static_cast<uint8_t*>(memory)) {}

  void quantize(int64_t row) const {
    const int64_t offset = (first + row) * args.x_stride * element_bytes(args.dtype);
    scales[row] = quantize_row(args.dtype, static_cast<const char*>(args.x) + offset, weight.factors.get(), args.in,
                               bytes + row * row_bytes(weight), weight.units() * kUnitDepth);
  }
};

// Rows row.. of the group by one panel. An activation is computed on floats, in y where they fit there.
void multiply_by_panel(const QuantizedRows& rows, int64_t row, int64_t count, int64_t panel) {
  alignas(64) int32_t sums[kTileRows * kPanelColumns];
  alignas(64) float values[kTileRows * kPanelColumns];
  const rf_linear_args& args = rows.args;
  const Int8Weight& weight = rows.weight;
  const int64_t row_bytes = QuantizedRows::row_bytes(weight), column = panel * kPanelColumns;
  const int64_t columns = std::min(kPanelColumns, args.out - column);
  const float* bias = args.bias == nullptr ? nullptr : static_cast<const float*>(args.bias) + column;
  void* y = static_cast<char*>(args.y) + ((rows.first + row) * args.y_stride + column) * element_bytes(args.dtype);
  multiply_panel({rows.bytes + row * row_bytes, row_bytes, count, weight.panel(panel), weight.units(), sums});
  Int8Finish finish{sums,
                    rows.scales + row,
                    count,
                    weight.scales.get() + column,
                    weight.sums.get() + column,
                    columns,
                    bias,
                    args.dtype,
                    y,
                    args.y_stride};
  if (args.activation == RF_LINEAR_NONE) return scale_panel(finish);
  finish.bias = nullptr;
  if (args.dtype == RF_F32) {
    scale_panel(finish);
    return activate(args.activation, bias, count, columns, static_cast<float*>(y), args.y_stride);
  }
  finish.dtype = RF_F32;
  finish.y = values;
  finish.y_stride = kPanelColumns;
  scale_panel(finish);
  activate(args.activation, bias, count, columns, values, kPanelColumns);
  store_panel(values, count, columns, args.dtype, y, args.y_stride);
}

// Panels of a task: few enough that a thread's panels stay in its cache from tile to tile, and that every thread gets
// several tasks.
int64_t panels_of_run(const Int8Weight& weight, int64_t tiles, int64_t threads) {
  constexpr int64_t kCacheBytes = int64_t{512} << 10, kTasksOfThread = 8;
  const int64_t cached = kCacheBytes / std::max<int64_t>(1, weight.panel_bytes());
  const int64_t share = weight.panels() * tiles / (threads * kTasksOfThread);
  return std::max<int64_t>(1, std::min(cached, share));
}

void multiply_group(const QuantizedRows& rows) {
  constexpr int64_t kParallelProducts = int64_t{1} << 18;  // below it a call ends before a second thread has started
  constexpr int64_t kParallelElements = int64_t{1} << 15;  // of x
  const rf_linear_args& args = rows.args;
  const bool parallel = rows.count * args.in >= kParallelProducts / args.out && omp_get_max_threads() > 1;
  const bool parallel_rows = parallel && rows.count * args.in >= kParallelElements;
  const int64_t tiles = (rows.count + kTileRows - 1) / kTileRows, panels = rows.weight.panels();
  const int64_t run = panels_of_run(rows.weight, tiles, parallel ? omp_get_max_threads() : 1);
  const int64_t tasks = tiles * ((panels + run - 1) / run);
  const auto multiply_task = [&](int64_t i) {
    const int64_t row = i % tiles * kTileRows, first = i / tiles * run;
    for (int64_t panel = first; panel < std::min(panels, first + run); ++panel) {
      multiply_by_panel(rows, row, std::min(kTileRows, rows.count - row), panel);
    }
  };
  for (int64_t row = 0; !parallel_rows && row < rows.count; ++row) rows.quantize(row);
  if (!parallel) {  // not by an `if` of OpenMP, which allocates a team of one
    for (int64_t i = 0; i < tasks; ++i) multiply_task(i);
    return;
  }
#pragma omp parallel
  {
    if (parallel_rows) {
#pragma omp for schedule(static)
      for (int64_t row = 0; row < rows.count; ++row) rows.quantize(row);
    }
#pragma omp for schedule(monotonic : dynamic) nowait
    for (int64_t i = 0; i < tasks; ++i) multiply_task(i);
  }
}

}  // namespace

Int8Weight pack_int8(int64_t in, int64_t out, const float* weight, int64_t stride, const float* input_scales) {
  Int8Weight packed;
  packed.in = in;
  packed.out = out;
  packed.values = aligned_array<int8_t>(packed.panels() * packed.panel_bytes());
  packed.scales = aligned_array<float>(packed.panels() * kPanelColumns);
  packed.sums = aligned_array<int32_t>(packed.panels() * kPanelColumns);
  if (input_scales != nullptr) {
    packed.factors = aligned_array<float>(in);
    for (int64_t i = 0; i < in; ++i) packed.factors[i] = 1 / input_scales[i];
  }
  parallel_tasks<Schedule::kDynamic>(
      {packed.panels(), packed.panels() > 1, packed.panel_bytes()}, [&](int64_t panel, void* space) {
        pack_panel({weight, stride, input_scales}, panel, packed, static_cast<uint32_t*>(space));
      });
  for (int64_t j = 0; j < out; ++j) {
    require(!std::isnan(packed.scales[j]), "linear",
            "weight must be finite to be packed as int8, got NaN or infinity in row ", j);
  }
  return packed;
}

void multiply_int8(const rf_linear_args& args, const Int8Weight& weight) {
  if (args.out == 0) return;
  for (int64_t first = 0; first < args.rows; first += kGroupRows) {
    const int64_t count = std::min(kGroupRows, args.rows - first);
    const Scratch space(QuantizedRows::space(weight, count));
    if (space.get() == nullptr) throw std::bad_alloc();
    multiply_group({args, weight, first, count, space.get()});
  }
}

}  // namespace rf::core
