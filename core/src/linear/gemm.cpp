// Tiles, tasks and threads of a matrix product (see the header).
//
// B is copied by all threads, a group of columns at a time; then a task is a tile of rows by a run of columns of the
// group. Sums of a task stay in its thread's work space until the last chunk has been added.
#include "linear/gemm.h"

#include <algorithm>

#include "common/aligned_array.h"
#include "common/parallel_tasks.h"
#include "linear/gemm_kernel.h"
#include "linear/gemm_onednn.h"
#include "rows/gelu_kernel.h"

namespace rf::core {
namespace {

// Work space of a task.
struct TaskSpace {
  static constexpr int64_t kUnits = kTileUnits * 2 + kTileRows * kRunBlocks * kBlockColumns;

  explicit TaskSpace(void* memory) : tile(static_cast<uint32_t*>(memory)) {}

  uint32_t* const tile;
  uint32_t* const staging = tile + kTileUnits;  // a copy that is to be transposed
  float* const sums = reinterpret_cast<float*>(staging + kTileUnits);
};

// task(i, space) for i below count.
template <class Task>
void run_tasks(int64_t count, const Task& task) {
  constexpr int64_t kBytes = TaskSpace::kUnits * int64_t{sizeof(uint32_t)};
  parallel_tasks<Schedule::kDynamic>({count, count > 1, kBytes},
                                     [&](int64_t i, void* memory) { task(i, TaskSpace(memory)); });
}

// Blocks first .. first + count - 1 of B, packed together.
struct PackedBlocks {
  const uint32_t* units;
  int64_t first, count;

  const uint32_t* at(const Gemm& gemm, int64_t chunk, int64_t block) const {
    return units + (chunk * kChunkUnits * count + (block - first) * gemm.units_of(chunk)) * kBlockColumns;
  }
};

void pack_blocks(const Gemm& gemm, const PackedBlocks& packed, uint32_t* to) {
  run_tasks(gemm.chunks() * packed.count, [&](int64_t i, const TaskSpace& space) {
    const int64_t chunk = i / packed.count, block = packed.first + i % packed.count;
    pack_block(gemm, block, chunk, to + (packed.at(gemm, chunk, block) - packed.units), space.staging);
  });
}

// Sums of a task: panel by panel, [panel][kTileRows][columns of the panel].
float* sums_of(const TaskSpace& space, int64_t block) {
  return space.sums + block * kBlockColumns * kTileRows;
}

void multiply_chunk(const Gemm& gemm, const PackedBlocks& packed, const TaskSpace& space, int64_t rows, int64_t chunk,
                    int64_t first, int64_t count) {
  TileProduct product;
  product.unit = gemm.unit;
  product.a = space.tile;
  product.rows = rows;
  product.units = gemm.units_of(chunk);
  product.adds = chunk > 0;
  for (int64_t block = 0; block < count; block += kPanelBlocks) {
    product.b = packed.at(gemm, chunk, first + block);
    product.c = sums_of(space, block);
    product.blocks = std::min(kPanelBlocks, count - block);
    gemm.backend == GemmBackend::kOnednn ? multiply_tile_onednn(product) : multiply_tile(product);
  }
}

// Sums, [rows][stride], to elements of C.
void finish(const Gemm& gemm, int64_t row, int64_t rows, int64_t column, int64_t columns, float* sums, int64_t stride) {
  const float* bias = gemm.bias == nullptr ? nullptr : gemm.bias + column;
  if (gemm.activation != RF_LINEAR_NONE) {
    rf_gelu_args gelu = {};
    gelu.dtype = RF_F32;
    gelu.form = gemm.activation == RF_LINEAR_GELU_ERF ? RF_GELU_ERF : RF_GELU_TANH;
    gelu.rows = rows;
    gelu.columns = columns;
    gelu.x = gelu.y = sums;
    gelu.x_stride = gelu.y_stride = stride;
    gelu.bias = bias;
    gelu_rows(gelu, {0, rows});
    bias = nullptr;
  }
  finish_tile(gemm, row, rows, column, columns, bias, sums, stride);
}

// Rows row.. of C by blocks first .. first + count - 1.
void multiply_task(const Gemm& gemm, const PackedBlocks& packed, const TaskSpace& space, int64_t row, int64_t first,
                   int64_t count) {
  const int64_t rows = std::min(kTileRows, gemm.rows - row);
  if (gemm.chunks() == 0) std::fill_n(space.sums, kTileRows * count * kBlockColumns, 0.0f);
  for (int64_t chunk = 0; chunk < gemm.chunks(); ++chunk) {
    pack_tile(gemm, row, rows, chunk, space.tile, space.staging);
    const int64_t units = gemm.units_of(chunk);
    std::fill(space.tile + rows * units, space.tile + kTileRows * units, 0);
    multiply_chunk(gemm, packed, space, rows, chunk, first, count);
  }
  for (int64_t block = 0; block < count; block += kPanelBlocks) {
    const int64_t column = (first + block) * kBlockColumns;
    const int64_t width = std::min(kPanelBlocks, count - block) * kBlockColumns;
    finish(gemm, row, rows, column, std::min(width, gemm.columns - column), sums_of(space, block), width);
  }
}

void multiply_blocks(const Gemm& gemm, const PackedBlocks& packed) {
  constexpr int64_t kEnoughTasks = 32, kFewTasks = 8;
  const int64_t tiles = (gemm.rows + kTileRows - 1) / kTileRows;
  int64_t run = kRunBlocks;
  const auto runs = [&] { return (packed.count + run - 1) / run; };
  while (run > kPanelBlocks && tiles * runs() < kEnoughTasks) run /= 2;
  while (run > 1 && tiles * runs() < kFewTasks) run /= 2;  // another copy of A costs less than a thread that waits
  run_tasks(tiles * runs(), [&](int64_t i, const TaskSpace& space) {
    const int64_t begin = i / tiles * run;
    multiply_task(gemm, packed, space, i % tiles * kTileRows, packed.first + begin,
                  std::min(run, packed.count - begin));
  });
}

// Blocks that are packed together: they stay in the last-level cache, or are one run of a very long sum.
int64_t blocks_of_group(const Gemm& gemm) {
  constexpr int64_t kGroupUnits = int64_t{4} << 20;
  const int64_t block_units = std::max<int64_t>(1, gemm.units()) * kBlockColumns;
  return std::max(kPanelBlocks, kGroupUnits / block_units / kPanelBlocks * kPanelBlocks);
}

}  // namespace

void pack_b(const Gemm& gemm, uint32_t* to) {
  pack_blocks(gemm, {to, 0, gemm.blocks()}, to);
}

void multiply(const Gemm& gemm) {
  if (gemm.rows == 0 || gemm.columns == 0) return;
  if (gemm.packed_b != nullptr) return multiply_blocks(gemm, {gemm.packed_b, 0, gemm.blocks()});
  const int64_t group = std::min(gemm.blocks(), blocks_of_group(gemm));
  const auto memory = aligned_array<uint32_t>(gemm.units() * group * kBlockColumns);
  for (int64_t first = 0; first < gemm.blocks(); first += group) {
    const int64_t count = std::min(group, gemm.blocks() - first);
    const PackedBlocks packed{memory.get(), first, count};
    pack_blocks(gemm, packed, memory.get());
    multiply_blocks(gemm, packed);
  }
}

}  // namespace rf::core
