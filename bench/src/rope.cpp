// Rotary embedding beside a copy: verification, interleaved windows, medians of ratios (see rf/bench/rope.h).
#include "rf/bench/rope.h"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ref/convert.h"
#include "rf/io/error.h"
#include "rf/rope.h"
#include "tolerances.h"

namespace rf::bench {

namespace {

constexpr int64_t kSetsBytes = int64_t{128} << 20;

enum class Order { kTokenMajor, kHeadMajor };
enum class Place { kOut, kIn };

struct Type {
  rf_dtype dtype;
  const char* name;
  int64_t bytes;
  double eps;
};

struct Side {
  std::string name;
  std::function<void()> run;
  std::vector<double> seconds;  // of one call, a round each
};

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
using Buffer = std::unique_ptr<char, Free>;

Buffer make_buffer(int64_t bytes) {
  constexpr int64_t kPage = 4096;
  Buffer buffer(static_cast<char*>(std::aligned_alloc(kPage, static_cast<size_t>((bytes / kPage + 1) * kPage))));
  if (buffer == nullptr) fail("bench", "the buffers must fit into memory, got {} bytes more", bytes);
  return buffer;
}

void must(rf_status status) {
  if (status != RF_OK) fail("bench", "{}", rf_last_error());
}

struct DestroyRope {
  void operator()(rf_rope* rope) const { rf_rope_destroy(rope); }
};
using Rope = std::unique_ptr<rf_rope, DestroyRope>;

Rope make_rope(int64_t rotary_dim) {
  std::vector<double> hi(static_cast<size_t>(rotary_dim / 2)), lo(hi.size());
  must(rf_rope_frequencies(10000, rotary_dim, hi.data(), lo.data()));
  rf_rope* rope = nullptr;
  must(rf_rope_create(hi.data(), lo.data(), rotary_dim / 2, 1, 0, &rope));
  return Rope(rope);
}

rf_rope_args make_args(const RopeOptions& options, const Type& type, Order order, rf_rope_layout layout, int64_t tokens,
                       const void* x, void* y) {
  rf_rope_args args = {};
  args.struct_size = sizeof(args);
  args.dtype = type.dtype;
  args.layout = layout;
  args.direction = RF_ROPE_FORWARD;
  args.batch = 1;
  args.tokens = tokens;
  args.heads = options.heads;
  args.head_dim = options.head_dim;
  const bool token_major = order == Order::kTokenMajor;
  args.x = x;
  args.y = y;
  args.x_stride_t = args.y_stride_t = token_major ? options.heads * options.head_dim : options.head_dim;
  args.x_stride_h = args.y_stride_h = token_major ? options.head_dim : tokens * options.head_dim;
  return args;
}

void copy(const char* from, char* to, int64_t bytes) {
#pragma omp parallel
  {
    constexpr int64_t kLine = 64;
    const int64_t share = (bytes / omp_get_num_threads() + kLine - 1) / kLine * kLine;
    const int64_t first = std::min(bytes, share * omp_get_thread_num());
    std::memcpy(to + first, from + first, static_cast<size_t>(std::min(share, bytes - first)));
  }
}

// The same call by the kernel and by the reference loops; the difference in units of eps times the sum of magnitudes.
void verify(rf_rope* rope, const Type& type, const rf_rope_args& args, int64_t elements) {
  const Buffer expected = make_buffer(elements * type.bytes);
  rf_rope_args reference = args;
  reference.y = expected.get();
  must(rf_set_target("ref"));
  must(rf_rope_apply(rope, &reference));
  must(rf_set_target(""));
  must(rf_rope_apply(rope, &args));
  const double bound = 2 * (type.eps / 2 + tests::kRotationEps * tests::kEpsF32);  // |x| < 1
  for (int64_t i = 0; i < elements; ++i) {
    const double got = ref::load(type.dtype, args.y, i);
    const double want = ref::load(type.dtype, expected.get(), i);
    if (!(std::abs(got - want) <= bound)) {
      fail("bench", "element {} of the {} result must be {}, got {}", i, type.name, want, got);
    }
  }
}

double seconds_of(const std::function<void()>& run, int repeats) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < repeats; ++i) run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / repeats;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

void measure(const RopeOptions& options, std::vector<Side>& sides) {
  std::vector<int> repeats;
  for (Side& side : sides) {
    side.run();
    repeats.push_back(std::max(1, static_cast<int>(options.window_ms / 1e3 / seconds_of(side.run, 3))));
  }
  for (int round = 0; round < options.rounds; ++round) {
    for (size_t i = 0; i < sides.size(); ++i) {
      sides[i].run();  // the first call of a window pays for what the side before it left in the caches
      sides[i].seconds.push_back(seconds_of(sides[i].run, repeats[i]));
    }
  }
}

void report(const RopeOptions& options, const Type& type, int64_t tokens, int64_t sets, const std::vector<Side>& sides,
            const std::function<void(const RopeResult&)>& result) {
  const double bytes = 2.0 * static_cast<double>(tokens * options.heads * options.head_dim * type.bytes);
  for (const Side& side : sides) {
    std::vector<double> ratios;
    for (size_t r = 0; r < side.seconds.size(); ++r) ratios.push_back(sides[0].seconds[r] / side.seconds[r]);
    const double seconds = median(side.seconds);
    result({.positions = tokens,
            .dtype = type.name,
            .side = side.name,
            .sets = sets,
            .median_us = seconds * 1e6,
            .gigabytes_per_second = bytes / seconds / 1e9,
            .ratio_to_copy = median(ratios)});
  }
}

void bench_case(const RopeOptions& options, const Type& type, int64_t tokens,
                const std::function<void(const RopeResult&)>& result) {
  const int64_t elements = tokens * options.heads * options.head_dim;
  const int64_t bytes = elements * type.bytes;
  const int64_t sets = options.sets != 0 ? options.sets : (kSetsBytes + bytes - 1) / bytes;
  std::vector<Buffer> x, y;
  for (int64_t set = 0; set < sets; ++set) {
    x.push_back(make_buffer(bytes));
    y.push_back(make_buffer(bytes));
    for (int64_t i = 0; set == 0 && i < elements; ++i) {
      ref::store(type.dtype, x[0].get(), i, std::sin(static_cast<double>(i)));
    }
    if (set != 0) std::memcpy(x.back().get(), x[0].get(), static_cast<size_t>(bytes));
    std::memcpy(y.back().get(), x[0].get(), static_cast<size_t>(bytes));
  }
  const Rope owner = make_rope(options.head_dim);
  rf_rope* rope = owner.get();
  size_t turn = 0;
  const auto next = [&] { return turn++ % x.size(); };

  std::vector<Side> sides;
  sides.push_back({"copy",
                   [&] {
                     const size_t set = next();
                     copy(x[set].get(), y[set].get(), bytes);
                   },
                   {}});
  for (const Order order : {Order::kTokenMajor, Order::kHeadMajor}) {
    for (const rf_rope_layout layout : {RF_ROPE_PAIRS, RF_ROPE_HALVES}) {
      verify(rope, type, make_args(options, type, order, layout, tokens, x[0].get(), y[0].get()), elements);
      for (const Place place : {Place::kOut, Place::kIn}) {
        const std::string name = std::string(order == Order::kTokenMajor ? "[T,H,D] " : "[H,T,D] ") +
                                 (layout == RF_ROPE_PAIRS ? "pairs " : "halves ") +
                                 (place == Place::kOut ? "out of place" : "in place");
        const auto run = [&, order, layout, place] {
          const size_t set = next();
          const void* from = place == Place::kOut ? x[set].get() : y[set].get();
          const rf_rope_args args = make_args(options, type, order, layout, tokens, from, y[set].get());
          must(rf_rope_apply(rope, &args));
        };
        sides.push_back({name, run, {}});
      }
    }
  }
  measure(options, sides);
  report(options, type, tokens, sets, sides, result);
}

}  // namespace

void bench_rope(const RopeOptions& options, const std::function<void(const RopeResult&)>& result) {
  for (const int64_t tokens : options.positions) {
    if (tokens < 1 || options.heads < 1 || options.head_dim < 2) {
      fail("bench", "positions and heads must be at least 1 and the head at least 2, got {}, {} and {}", tokens,
           options.heads, options.head_dim);
    }
    for (const Type& type :
         {Type{RF_F32, "float32", 4, tests::kEpsF32}, Type{RF_BF16, "bfloat16", 2, tests::kEpsBf16}}) {
      bench_case(options, type, tokens, result);
    }
  }
}

}  // namespace rf::bench
