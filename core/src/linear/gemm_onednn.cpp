// Tiles of a matrix product by oneDNN's matmul. It computes a tile on one thread rather than a whole product, because
// oneDNN's division of work, and so the bits of its result, depends on the number of threads. B is read as gemm.h packs
// it, which is oneDNN's BA16a64b (floats) and BA16a64b2a (pairs).
//
// A primitive is compiled code for one shape. Rows are rounded up to 16 and a chunk's units to 16, so there are at most
// 4 * 33 * kPanelBlocks * 2 shapes for each unit, which bounds the cache. One cache serves all threads, because
// primitives are stateless.
#include "linear/gemm_kernel.h"

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <unordered_map>

#include <omp.h>
#include <oneapi/dnnl/dnnl.hpp>

#include "common/aligned_array.h"

namespace rf::core {
namespace {

const dnnl::engine& engine() {
  static const dnnl::engine value(dnnl::engine::kind::cpu, 0);
  return value;
}

struct Kernel {
  std::string name;
  dnnl::memory::desc a, b, c, scratchpad;
  dnnl::matmul product;
};

// Primitives created while this exists run on the calling thread.
class OneThread {
 public:
  OneThread() { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_ = omp_get_max_threads();
};

using Shape = std::tuple<Unit, int64_t, int64_t, int64_t, bool>;  // rows, units, blocks, adds

Kernel make_kernel(const Shape& shape) {
  using dnnl::memory;
  const auto [unit, rows, units, blocks, adds] = shape;
  const bool pairs = unit == Unit::kBf16Pair;
  const int64_t per_unit = pairs ? 2 : 1, columns = blocks * kBlockColumns, depth = units * per_unit;
  const auto type = pairs ? memory::data_type::bf16 : memory::data_type::f32;
  const auto order = pairs ? memory::format_tag::BA16a64b2a : memory::format_tag::BA16a64b;
  const memory::desc a({rows, depth}, type, memory::dims{depth, 1});
  const memory::desc b({depth, columns}, type, order);
  const memory::desc c({rows, columns}, memory::data_type::f32, memory::dims{columns, 1});
  dnnl::post_ops add;
  if (adds) add.append_sum(1.0f);
  dnnl::primitive_attr attributes;
  attributes.set_post_ops(add);
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const OneThread one_thread;
  const dnnl::matmul::primitive_desc description(engine(), a, b, c, attributes);
  return {description.impl_info_str(), a, b, c, description.scratchpad_desc(), dnnl::matmul(description)};
}

const Kernel& kernel_of(const Shape& shape) {
  static std::mutex mutex;
  static std::map<Shape, std::unique_ptr<const Kernel>> kernels;
  const std::lock_guard lock(mutex);
  auto& kernel = kernels[shape];
  if (kernel == nullptr) kernel = std::make_unique<const Kernel>(make_kernel(shape));
  return *kernel;
}

void* scratchpad(size_t bytes) {
  thread_local AlignedArray<char> memory;
  thread_local size_t held = 0;
  if (bytes > held) {
    memory = aligned_array<char>(static_cast<int64_t>(bytes));
    held = bytes;
  }
  return memory.get();
}

}  // namespace

bool has_onednn(Unit unit) {
  // Unsupported cases run in its reference loops, at a thousandth of the kernels' speed.
  const auto has_kernel = [](Unit of) {
    return make_kernel({of, kTileRows, kChunkUnits, kPanelBlocks, true}).name.find("ref") == std::string::npos;
  };
  static const bool has_floats = has_kernel(Unit::kFloat), has_pairs = has_kernel(Unit::kBf16Pair);
  return unit == Unit::kBf16Pair ? has_pairs : has_floats;
}

void multiply_tile_onednn(const TileProduct& product) {
  const int64_t rows = (product.rows + 15) / 16 * 16;
  const Kernel& kernel = kernel_of({product.unit, rows, product.units, product.blocks, product.adds});
  const auto at = [](const dnnl::memory::desc& description, const void* data) {
    return dnnl::memory(description, engine(), const_cast<void*>(data));
  };
  thread_local dnnl::stream stream(engine());
  kernel.product.execute(stream,
                         {{DNNL_ARG_SRC, at(kernel.a, product.a)},
                          {DNNL_ARG_WEIGHTS, at(kernel.b, product.b)},
                          {DNNL_ARG_DST, at(kernel.c, product.c)},
                          {DNNL_ARG_SCRATCHPAD, at(kernel.scratchpad, scratchpad(kernel.scratchpad.get_size()))}});
}

}  // namespace rf::core
