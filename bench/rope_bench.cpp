// Speed of rotary embedding beside an out-of-place copy of the same bytes (glibc memcpy, one share a thread).
//
// Each case is first held to the float64 reference loops. Then copy and all sides take turns in one process, in short
// windows; a side's figure is the median over rounds of (copy's time / its own time) within a round, so that what else
// the machine does at that moment falls on both. Steady state: the tables are there.
//
// Calls take pairs of buffers in turn: by default as many as make the results alone 128 MiB, so that the data come from
// memory as activations do. --sets 1 uses one pair, which for small cases stays in the last-level cache.
//
//   rope_bench [--sets N] [--heads 12] [--head-dim 64] [--rounds 41] [--window-ms 4] [--positions 4096,32768]
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ref/convert.h"
#include "rf/rope.h"
#include "tolerances.h"

namespace {

constexpr int64_t kSetsBytes = int64_t{128} << 20;

struct Options {
  int64_t heads = 12;
  int64_t head_dim = 64;
  int64_t sets = 0;  // 0: as many as kSetsBytes asks for
  int64_t rounds = 41;
  double window_ms = 4;
  std::vector<int64_t> positions = {4096, 32768};
};

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
  if (buffer == nullptr) {
    std::fprintf(stderr, "[rope_bench] no memory for %lld bytes\n", static_cast<long long>(bytes));
    std::exit(1);
  }
  return buffer;
}

void must(rf_status status) {
  if (status == RF_OK) return;
  std::fprintf(stderr, "%s\n", rf_last_error());
  std::exit(1);
}

rf_rope* make_rope(int64_t rotary_dim) {
  std::vector<double> hi(static_cast<size_t>(rotary_dim / 2)), lo(hi.size());
  must(rf_rope_frequencies(10000, rotary_dim, hi.data(), lo.data()));
  rf_rope* rope = nullptr;
  must(rf_rope_create(hi.data(), lo.data(), rotary_dim / 2, 1, 0, &rope));
  return rope;
}

rf_rope_args make_args(const Options& options, const Type& type, Order order, rf_rope_layout layout, int64_t tokens,
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
  const double bound = 2 * (type.eps / 2 + rf::tests::kRotationEps * rf::tests::kEpsF32);  // |x| < 1
  for (int64_t i = 0; i < elements; ++i) {
    const double got = rf::ref::load(type.dtype, args.y, i);
    const double want = rf::ref::load(type.dtype, expected.get(), i);
    if (!(std::abs(got - want) <= bound)) {
      std::fprintf(stderr, "[rope_bench] element %lld of %s must be %.9g, got %.9g\n", static_cast<long long>(i),
                   type.name, want, got);
      std::exit(1);
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

void measure(const Options& options, std::vector<Side>& sides) {
  std::vector<int> repeats;
  for (Side& side : sides) {
    side.run();
    repeats.push_back(std::max(1, static_cast<int>(options.window_ms / 1e3 / seconds_of(side.run, 3))));
  }
  for (int64_t round = 0; round < options.rounds; ++round) {
    for (size_t i = 0; i < sides.size(); ++i) {
      sides[i].run();  // the first call of a window pays for what the side before it left in the caches
      sides[i].seconds.push_back(seconds_of(sides[i].run, repeats[i]));
    }
  }
}

void report(const Options& options, const Type& type, int64_t tokens, int64_t sets, const std::vector<Side>& sides) {
  const double bytes = 2.0 * static_cast<double>(tokens * options.heads * options.head_dim * type.bytes);
  for (const Side& side : sides) {
    std::vector<double> ratios;
    for (size_t r = 0; r < side.seconds.size(); ++r) ratios.push_back(sides[0].seconds[r] / side.seconds[r]);
    const double seconds = median(side.seconds);
    const double ratio = median(ratios);
    std::printf(
        "{\"bench\": \"rope\", \"positions\": %lld, \"dtype\": \"%s\", \"side\": \"%s\", \"sets\": %lld, \"heads\": "
        "%lld, "
        "\"head_dim\": %lld, \"threads\": %d, \"median_us\": %.1f, \"gigabytes_per_second\": %.2f, "
        "\"ratio_to_copy\": %.3f}\n",
        static_cast<long long>(tokens), type.name, side.name.c_str(), static_cast<long long>(sets),
        static_cast<long long>(options.heads), static_cast<long long>(options.head_dim), omp_get_max_threads(),
        seconds * 1e6, bytes / seconds / 1e9, ratio);
    std::fprintf(stderr, "%8lld  %-5s %-26s %9.1f us %8.2f GB/s   %.3f of copy\n", static_cast<long long>(tokens),
                 type.name, side.name.c_str(), seconds * 1e6, bytes / seconds / 1e9, ratio);
  }
  std::fflush(stdout);
}

void bench_case(const Options& options, const Type& type, int64_t tokens) {
  const int64_t elements = tokens * options.heads * options.head_dim;
  const int64_t bytes = elements * type.bytes;
  const int64_t sets = options.sets != 0 ? options.sets : (kSetsBytes + bytes - 1) / bytes;
  std::vector<Buffer> x, y;
  for (int64_t set = 0; set < sets; ++set) {
    x.push_back(make_buffer(bytes));
    y.push_back(make_buffer(bytes));
    for (int64_t i = 0; set == 0 && i < elements; ++i) {
      rf::ref::store(type.dtype, x[0].get(), i, std::sin(static_cast<double>(i)));
    }
    if (set != 0) std::memcpy(x.back().get(), x[0].get(), static_cast<size_t>(bytes));
    std::memcpy(y.back().get(), x[0].get(), static_cast<size_t>(bytes));
  }
  rf_rope* rope = make_rope(options.head_dim);
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
  report(options, type, tokens, sets, sides);
  rf_rope_destroy(rope);
}

[[noreturn]] void usage() {
  std::fprintf(stderr,
               "usage: rope_bench [--sets N] [--heads 12] [--head-dim 64] [--rounds 41] [--window-ms 4] "
               "[--positions 4096,32768]\n");
  std::exit(2);
}

// Numbers >= 1, separated by commas.
std::vector<int64_t> parse_numbers(const char* text) {
  std::vector<int64_t> numbers;
  while (true) {
    char* end = nullptr;
    numbers.push_back(std::strtoll(text, &end, 10));
    if (numbers.back() < 1 || (*end != ',' && *end != '\0')) usage();
    if (*end == '\0') return numbers;
    text = end + 1;
  }
}

Options parse(int argc, char** argv) {
  Options options;
  if (argc % 2 == 0) usage();
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    const std::vector<int64_t> values = parse_numbers(argv[i + 1]);
    if (name == "--positions") {
      options.positions = values;
    } else if (values.size() != 1) {
      usage();
    } else if (name == "--sets") {
      options.sets = values[0];
    } else if (name == "--heads") {
      options.heads = values[0];
    } else if (name == "--head-dim") {
      options.head_dim = values[0];
    } else if (name == "--rounds") {
      options.rounds = values[0];
    } else if (name == "--window-ms") {
      options.window_ms = static_cast<double>(values[0]);
    } else {
      usage();
    }
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  std::fprintf(stderr, "instruction set %s, %d threads, %lld heads of %lld\n", rf_target(), omp_get_max_threads(),
               static_cast<long long>(options.heads), static_cast<long long>(options.head_dim));
  for (const int64_t tokens : options.positions) {
    for (const Type& type :
         {Type{RF_F32, "f32", 4, rf::tests::kEpsF32}, Type{RF_BF16, "bf16", 2, rf::tests::kEpsBf16}}) {
      bench_case(options, type, tokens);
    }
  }
  return 0;
}
