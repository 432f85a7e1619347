// Tiles, tasks and threads of a matrix product (see the header).
//
// B is copied by all threads, a group of columns at a time; then a task is a tile of rows by a run of columns of the
// group. Sums of a task stay in its thread's work space until the last chunk has been added.
#include "linear/gemm.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "common/aligned_array.h"
#include "common/element.h"
#include "common/parallel_tasks.h"
#include "linear/gemm_blocks.h"
#include "linear/gemm_kernel.h"
#include "rows/kernels.h"

namespace rf::core {
namespace {

// Work space of the tasks of a thread.
struct TaskSpace {
  static constexpr int64_t kUnits = kTileUnits * 2 + kTileRows * kRunBlocks * kBlockColumns;

  explicit TaskSpace(void* memory) : tile(static_cast<uint32_t*>(memory)) {}

  uint32_t* const tile;
  uint32_t* const staging = tile + kTileUnits;  // a copy before its transposition
  float* const sums = reinterpret_cast<float*>(staging + kTileUnits);
  const uint32_t* ahead = nullptr;  // the block that was prefetched last
};

constexpr int64_t kSpaceBytes = TaskSpace::kUnits * int64_t{sizeof(uint32_t)};

// task(i, space) for i below count. Each thread begins with its own share of neighbouring tasks, so that it reads the
// same part of B in every call, which its caches may still hold; a thread that has finished its share helps the others.
template <class Task>
void run_shares(int64_t count, bool parallel, const Task& task) {
  constexpr int64_t kMaxShares = 64;
  struct alignas(64) Share {  // one per cache line
    std::atomic<int64_t> begun = 0;
  };
  std::array<Share, kMaxShares> shares;
  const int64_t threads = parallel ? omp_get_max_threads() : 1, number = std::min({threads, count, kMaxShares});
  parallel_tasks<Schedule::kStatic>({threads, parallel, kSpaceBytes}, [&](int64_t thread, void* memory) {
    TaskSpace space(memory);
    for (int64_t i = 0; i < number; ++i) {
      const int64_t share = (thread * number / threads + i) % number;
      const int64_t begin = count * share / number, end = count * (share + 1) / number;
      for (int64_t done; (done = shares[share].begun.fetch_add(1, std::memory_order_relaxed)) < end - begin;) {
        task(begin + done, space);
      }
    }
  });
}

// Blocks first .. first + count - 1 of B, packed together.
struct PackedBlocks {
  const uint32_t* units;
  int64_t first, count;

  const uint32_t* at(const Gemm& gemm, int64_t chunk, int64_t block) const {
    return units + (chunk * gemm.chunk_units * count + (block - first) * gemm.units_of(chunk)) * kBlockColumns;
  }
};

void pack_blocks(const Gemm& gemm, const PackedBlocks& packed, uint32_t* to) {
  const int64_t count = gemm.chunks() * packed.count;
  parallel_tasks<Schedule::kDynamic>({count, count > 1, kSpaceBytes}, [&](int64_t i, void* memory) {
    const int64_t chunk = i / packed.count, block = packed.first + i % packed.count;
    pack_block(gemm, block, chunk, to + (packed.at(gemm, chunk, block) - packed.units), TaskSpace(memory).staging);
  });
}

// Whether rows of A can be read as units in place. Products with packed weights end with the depth; if weights are
// packed for one call, products also add the zeros behind the depth, which can turn a sum of -0 into 0.
bool reads_rows_in_place(const Gemm& gemm) {
  const int64_t unit_depth = gemm.depth_of_unit();
  return gemm.a.contiguous == GemmOperand::Contiguous::kDepth &&
         gemm.a.dtype == (gemm.unit == Unit::kFloat ? RF_F32 : RF_BF16) && gemm.depth % unit_depth == 0 &&
         gemm.a.stride % unit_depth == 0 && reinterpret_cast<uintptr_t>(gemm.a.data) % sizeof(uint32_t) == 0 &&
         (gemm.packed_b != nullptr || gemm.blocks_b != nullptr || gemm.depth % (kUnitStep * unit_depth) == 0);
}

// Tiles of rows by runs of blocks; the tiles of a run are neighbours.
struct Division {
  bool in_place;
  int64_t tile_rows, tiles, run, runs;
};

Division divide(const Gemm& gemm, int64_t blocks) {
  Division cut = {};
  cut.in_place = reads_rows_in_place(gemm);
  cut.tiles = (gemm.rows + kTileRows - 1) / kTileRows;
  cut.tile_rows = (gemm.rows + cut.tiles - 1) / cut.tiles;  // of nearly equal size
  cut.run = kRunBlocks;
  const auto tasks = [&] { return cut.tiles * ((blocks + cut.run - 1) / cut.run); };
  // Another copy of A costs less than a waiting thread.
  const int64_t threads = omp_get_max_threads(), enough = 16 * threads, few = 4 * threads;
  while (cut.run > (cut.in_place ? 1 : kPanelBlocks) && tasks() < enough) cut.run /= 2;
  while (cut.run > 1 && tasks() < few) cut.run /= 2;
  cut.runs = (blocks + cut.run - 1) / cut.run;
  return cut;
}

struct Task {
  bool in_place;
  int64_t row, rows;
  int64_t first, count;  // blocks
  int64_t next;          // the block that the next task begins with
};

Task task_of(const Gemm& gemm, const PackedBlocks& packed, const Division& cut, int64_t i) {
  const auto begin = [&](int64_t task) { return packed.first + std::min(task / cut.tiles, cut.runs - 1) * cut.run; };
  Task task = {};
  task.in_place = cut.in_place;
  task.row = i % cut.tiles * cut.tile_rows;
  task.rows = std::min(cut.tile_rows, gemm.rows - task.row);
  task.first = begin(i);
  task.count = std::min(cut.run, packed.first + packed.count - task.first);
  task.next = begin(i + 1);
  return task;
}

// A tile of A for one chunk.
void set_tile(const Gemm& gemm, const Task& task, const TaskSpace& space, int64_t chunk, TileProduct& product) {
  if (task.in_place) {
    const int64_t offset = task.row * gemm.a.stride + chunk * gemm.chunk_depth();
    product.a =
        reinterpret_cast<const uint32_t*>(static_cast<const char*>(gemm.a.data) + offset * element_bytes(gemm.a.dtype));
    product.a_row = gemm.a.stride / gemm.depth_of_unit();
    return;
  }
  const int64_t units = gemm.units_of(chunk);
  pack_tile(gemm, task.row, task.rows, chunk, space.tile, space.staging);
  product.a = space.tile;
  product.a_row = units;
}

// Sums of a task: panel by panel, [panel][kTileRows][columns of the panel].
float* sums_of(const TaskSpace& space, int64_t block) { return space.sums + block * kBlockColumns * kTileRows; }

}  // namespace

void activate(rf_linear_activation activation, const float* bias, int64_t rows, int64_t columns, float* x,
              int64_t stride) {
  rf_gelu_args gelu = {};
  gelu.dtype = RF_F32;
  gelu.form = activation == RF_LINEAR_GELU_ERF ? RF_GELU_ERF : RF_GELU_TANH;
  gelu.rows = rows;
  gelu.columns = columns;
  gelu.x = gelu.y = x;
  gelu.x_stride = gelu.y_stride = stride;
  gelu.bias = bias;
  gelu_rows(gelu, {0, rows});
}

namespace {

// Gates and their factors in blocks to results in place, in half the columns.
void multiply_by_gates(const Gemm& gemm, const float* bias, int64_t rows, int64_t columns, float* sums,
                       int64_t stride) {
  constexpr int64_t kGates = kBlockColumns / 2;
  rf_gelu_args gelu = {};
  gelu.dtype = RF_F32;
  gelu.form = gemm.gate;
  gelu.rows = rows;
  gelu.columns = kGates;
  gelu.x_stride = gelu.factor_stride = gelu.y_stride = stride;
  for (int64_t r = 0; bias != nullptr && r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) sums[r * stride + c] += bias[c];
  }
  for (int64_t c = 0; c < columns; c += kBlockColumns) {
    gelu.x = sums + c;
    gelu.factor = sums + c + kGates;
    gelu.y = sums + c / 2;
    gelu_rows(gelu, {0, rows});
  }
}

// Sums, [rows][stride], to elements of C.
void finish(const Gemm& gemm, int64_t row, int64_t rows, int64_t column, int64_t columns, float* sums, int64_t stride) {
  const float* bias = gemm.bias == nullptr ? nullptr : gemm.bias + column;
  if (gemm.gate != 0) {
    multiply_by_gates(gemm, bias, rows, columns, sums, stride);
    return finish_tile(gemm, row, rows, column / 2, columns / 2, nullptr, sums, stride);
  }
  if (gemm.activation != RF_LINEAR_NONE) {
    activate(gemm.activation, bias, rows, columns, sums, stride);
    bias = nullptr;
  }
  finish_tile(gemm, row, rows, column, columns, bias, sums, stride);
}

void finish_panel(const Gemm& gemm, const Task& task, const TaskSpace& space, int64_t block,
                  int64_t blocks = kPanelBlocks) {
  const int64_t column = (task.first + block) * kBlockColumns;
  const int64_t width = std::min(blocks, task.count - block) * kBlockColumns;
  finish(gemm, task.row, task.rows, column, std::min(width, gemm.columns - column), sums_of(space, block), width);
}

void multiply_chunk(const Gemm& gemm, const PackedBlocks& packed, const Task& task, TaskSpace& space, int64_t chunk) {
  const auto block_at = [&](int64_t of, int64_t block) {
    return BlockUnits{packed.at(gemm, of, block), gemm.units_of(of)};
  };
  const bool is_last = chunk + 1 == gemm.chunks();
  TileProduct product;
  product.unit = gemm.unit;
  product.amx = gemm.amx;
  product.rows = task.rows;
  product.block_units = gemm.units_of(chunk);
  product.units = gemm.packed_b == nullptr ? product.block_units : gemm.depth_units_of(chunk);
  product.adds = chunk > 0;
  set_tile(gemm, task, space, chunk, product);
  for (int64_t block = 0; block < task.count; block += kPanelBlocks) {
    product.b = packed.at(gemm, chunk, task.first + block);
    product.c = sums_of(space, block);
    product.blocks = std::min(kPanelBlocks, task.count - block);
    product.ahead = block + kPanelBlocks < task.count ? block_at(chunk, task.first + block + kPanelBlocks)
                    : is_last                         ? block_at(0, task.next)
                                                      : block_at(chunk + 1, task.first);
    product.asked = product.b == space.ahead;
    space.ahead = product.ahead.data;
    multiply_tile(product);
    if (is_last) finish_panel(gemm, task, space, block);
  }
}

// A block of columns by a row, or chunk by chunk unpacked to floats.
void multiply_file_block(const Gemm& gemm, const Task& task, TaskSpace& space, int64_t block) {
  if (task.in_place && task.rows == 1) {
    return multiply_row(*gemm.blocks_b, task.first + block,
                        static_cast<const float*>(gemm.a.data) + task.row * gemm.a.stride, sums_of(space, block));
  }
  TileProduct product;
  product.rows = task.rows;
  product.blocks = 1;
  product.asked = true;
  product.b = space.staging;
  product.c = sums_of(space, block);
  for (int64_t chunk = 0; chunk < gemm.chunks(); ++chunk) {
    product.units = product.block_units = gemm.depth_of(chunk);
    product.adds = chunk > 0;
    set_tile(gemm, task, space, chunk, product);
    unpack_block(*gemm.blocks_b, task.first + block, chunk * gemm.chunk_depth(), product.units,
                 reinterpret_cast<float*>(space.staging));
    multiply_tile(product);
  }
}

void multiply_task(const Gemm& gemm, const PackedBlocks& packed, const Task& task, TaskSpace& space) {
  for (int64_t block = 0; gemm.blocks_b != nullptr && gemm.depth > 0 && block < task.count; ++block) {
    multiply_file_block(gemm, task, space, block);
    finish_panel(gemm, task, space, block, 1);
    if (block + 1 == task.count) return;
  }
  for (int64_t chunk = 0; chunk < gemm.chunks(); ++chunk) multiply_chunk(gemm, packed, task, space, chunk);
  if (gemm.chunks() > 0) return;
  std::fill_n(space.sums, kTileRows * task.count * kBlockColumns, 0.0f);
  for (int64_t block = 0; block < task.count; block += kPanelBlocks) finish_panel(gemm, task, space, block);
}

void multiply_blocks(const Gemm& gemm, const PackedBlocks& packed) {
  const Division cut = divide(gemm, packed.count);
  const int64_t tasks = cut.tiles * cut.runs;
  // Four microseconds of one thread: starting another takes one to three. Reading B takes as long as three rows.
  constexpr int64_t kEnoughWork = int64_t{1} << 18, kRowsOfReading = 3;
  const int64_t work = gemm.units() * packed.count * kBlockColumns * std::max(gemm.rows, kRowsOfReading);
  run_shares(tasks, tasks > 1 && work >= kEnoughWork,
             [&](int64_t i, TaskSpace& space) { multiply_task(gemm, packed, task_of(gemm, packed, cut, i), space); });
}

// Blocks that are packed together: they stay in the last-level cache, or are one run of a very long sum.
int64_t blocks_of_group(const Gemm& gemm) {
  constexpr int64_t kGroupUnits = int64_t{4} << 20;
  const int64_t block_units = std::max<int64_t>(1, gemm.units()) * kBlockColumns;
  return std::max(kPanelBlocks, kGroupUnits / block_units / kPanelBlocks * kPanelBlocks);
}

}  // namespace

void pack_b(const Gemm& gemm, uint32_t* to) { pack_blocks(gemm, {to, 0, gemm.blocks()}, to); }

void multiply(const Gemm& gemm) {
  if (gemm.rows == 0 || gemm.columns == 0) return;
  if (gemm.packed_b != nullptr || gemm.blocks_b != nullptr)
    return multiply_blocks(gemm, {gemm.packed_b, 0, gemm.blocks()});
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
