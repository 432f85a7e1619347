// Products of few and of many rows with packed weights (rf/linear.h), for the layers of a base encoder and the scores
// of a vocabulary:
//
//   packed_products [ROWS ...]        as OMP_NUM_THREADS says
//
// Each layer is compared with float64 loops before it is timed, `warm` repeats a call with one weight, which the caches
// keep if it fits, and takes the best; `cold` cycles through many weights, and takes the median. Reference values are
// measured in the same run: the product of 1024 rows (GFLOP/s), reading as many bytes again and again (GB/s, warm), and
// a copy of 128 MiB, bytes read and bytes written (GB/s, cold).
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "rf/linear.h"

namespace {

constexpr double kGiga = 1e9;
constexpr int64_t kMemoryBytes = int64_t{128} << 20;  // far more than caches hold
constexpr int64_t kCopied = int64_t{32} << 20;        // processed together; divides the number of elements
constexpr int64_t kPart = int64_t{32} << 10;

void must(rf_status status) {
  if (status == RF_OK) return;
  std::fprintf(stderr, "%s\n", rf_last_error());
  std::exit(1);
}

enum class Take { kMin, kMedian };

// Seconds of a call: the minimum, which other load has not disturbed, or the median, for calls that find different data
// in the caches.
double seconds_of(const std::function<void()>& call, Take take = Take::kMin) {
  using Clock = std::chrono::steady_clock;
  constexpr double kTotalSeconds = 0.03;
  constexpr size_t kMinCalls = 5;
  std::vector<double> times;
  for (double total = 0; times.size() < kMinCalls || total < kTotalSeconds; total += times.back()) {
    const auto begin = Clock::now();
    call();
    times.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  std::sort(times.begin(), times.end());
  return take == Take::kMin ? times.front() : times[times.size() / 2];
}

double copy_rate() {
  std::vector<char> from(kMemoryBytes, 1), to(kMemoryBytes);
  const double seconds = seconds_of([&] {
#pragma omp parallel for schedule(static)
    for (int64_t at = 0; at < kMemoryBytes; at += kCopied) std::memcpy(&to[at], &from[at], kCopied);
  });
  return 2 * static_cast<double>(kMemoryBytes) / seconds / kGiga;
}

double read_rate(int64_t bytes) {
  const std::vector<char> data(bytes, 1);
  bool found = false;
  const double seconds = seconds_of([&] {
#pragma omp parallel for schedule(static) reduction(|| : found)
    for (int64_t at = 0; at < bytes; at += kPart) {
      found = found || std::memchr(&data[at], 2, std::min(kPart, bytes - at)) != nullptr;
    }
  });
  if (found) std::abort();
  return static_cast<double>(bytes) / seconds / kGiga;
}

// Numbers of 8 bits, which every type holds exactly.
struct Array {
  std::vector<float> values;
  std::vector<uint16_t> halves;

  explicit Array(int64_t count, unsigned seed) : values(count), halves(count) {
    std::mt19937 random(seed);
    for (int64_t i = 0; i < count; ++i) {
      values[i] = static_cast<float>(static_cast<int>(random() % 256) - 128) / 128;
      uint32_t bits = 0;
      std::memcpy(&bits, &values[i], sizeof bits);
      halves[i] = static_cast<uint16_t>(bits >> 16);
    }
  }
  const void* of(rf_dtype dtype) const {
    return dtype == RF_F32 ? static_cast<const void*>(values.data()) : halves.data();
  }
};

struct Destroy {
  void operator()(rf_linear_packed* packed) const { rf_linear_packed_destroy(packed); }
};
using Packed = std::unique_ptr<rf_linear_packed, Destroy>;

struct Layer {
  rf_dtype dtype;
  int64_t in, out;
  rf_linear_activation activation;
  const Array &x, &weight;
  std::vector<float> y;

  Layer(rf_dtype dtype_, int64_t in_, int64_t out_, rf_linear_activation activation_, int64_t max_rows, const Array& x_,
        const Array& weight_)
      : dtype(dtype_), in(in_), out(out_), activation(activation_), x(x_), weight(weight_), y(max_rows * out_) {}

  Packed pack() const {
    rf_linear_packed* made = nullptr;
    must(rf_linear_pack(dtype, in, out, weight.of(dtype), in, &made));
    return Packed(made);
  }
  double weight_bytes() const { return static_cast<double>(in * out * (dtype == RF_F32 ? 4 : 2)); }
  void run(const Packed& packed, int64_t rows) {
    rf_linear_args args = {};
    args.struct_size = sizeof args;
    args.dtype = dtype;
    args.activation = activation;
    args.rows = rows;
    args.in = args.x_stride = in;
    args.out = args.y_stride = out;
    args.x = x.of(dtype);
    args.packed = packed.get();
    args.y = y.data();
    must(rf_linear_forward(&args));
  }
  double result(int64_t i) const {
    if (dtype == RF_F32) return y[i];
    uint16_t half = 0;
    std::memcpy(&half, reinterpret_cast<const char*>(y.data()) + i * 2, sizeof half);
    const uint32_t bits = uint32_t{half} << 16;
    float value = 0;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
  void verify(int64_t rows);
};

void Layer::verify(int64_t rows) {
  constexpr double kFloatEps = 0x1p-23, kHalfEps = 0x1p-8, kSums = 4, kSlope = 1.14;
  run(pack(), rows);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < out; j += 61) {
      double sum = 0, magnitudes = 0;
      for (int64_t t = 0; t < in; ++t) {
        const double term = static_cast<double>(x.values[r * in + t]) * static_cast<double>(weight.values[j * in + t]);
        sum += term;
        magnitudes += std::abs(term);
      }
      const double want = activation == RF_LINEAR_NONE ? sum : sum * 0.5 * std::erfc(-sum / std::sqrt(2.0));
      const double error = kSlope * kSums * kFloatEps * magnitudes + (dtype == RF_F32 ? 0 : kHalfEps * std::abs(want));
      if (std::abs(result(r * out + j) - want) <= error) continue;
      std::fprintf(stderr, "row %lld column %lld of %lld rows must be %g, got %g\n", static_cast<long long>(r),
                   static_cast<long long>(j), static_cast<long long>(rows), want, result(r * out + j));
      std::exit(1);
    }
  }
}

struct Yardsticks {
  double products[2];  // GFLOP/s of float32 and bfloat16
  double copy;         // GB/s
};

void time_layer(Layer& layer, const std::vector<int64_t>& rows, const Yardsticks& yardsticks) {
  for (const int64_t count : {int64_t{1}, int64_t{7}, int64_t{33}}) layer.verify(count);
  const double bytes = layer.weight_bytes(), warm_rate = read_rate(static_cast<int64_t>(bytes));
  const double ceiling = yardsticks.products[layer.dtype == RF_F32 ? 0 : 1];
  std::vector<Packed> weights;
  do {
    weights.push_back(layer.pack());
  } while (static_cast<double>(weights.size()) * bytes < static_cast<double>(kMemoryBytes));
  for (const int64_t count : rows) {
    size_t next = 0;
    const double operations = 2 * static_cast<double>(count * layer.in * layer.out);
    const double warm = seconds_of([&] { layer.run(weights[0], count); });
    const double cold = seconds_of([&] { layer.run(weights[next++ % weights.size()], count); }, Take::kMedian);
    std::printf("%5lld x %-5lld %s %s %4lld |", static_cast<long long>(layer.in), static_cast<long long>(layer.out),
                layer.dtype == RF_F32 ? "f32 " : "bf16", layer.activation == RF_LINEAR_NONE ? "    " : "gelu",
                static_cast<long long>(count));
    const auto show = [&](double seconds, double rate) {
      std::printf(" %8.1f us %6.1f GFLOP/s %4.2f  %6.1f GB/s %4.2f |", seconds * 1e6, operations / seconds / kGiga,
                  operations / seconds / kGiga / ceiling, bytes / seconds / kGiga, bytes / seconds / kGiga / rate);
    };
    show(warm, warm_rate);
    show(cold, yardsticks.copy);
    std::printf("\n");
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<int64_t> rows;
  for (int i = 1; i < argc; ++i) rows.push_back(std::atoll(argv[i]));
  if (rows.empty()) rows = {1, 2, 4, 8, 15, 16, 32, 64, 128};
  constexpr int64_t kMany = 1024, kWidth = 768, kInner = 3072, kVocabulary = 50000;
  const Array x(kMany * kInner, 1), weight(kWidth * kVocabulary, 2);
  const auto layer = [&](rf_dtype dtype, int64_t in, int64_t out, rf_linear_activation activation, int64_t most) {
    return Layer(dtype, in, out, activation, most, x, weight);
  };
  Yardsticks yardsticks = {};
  yardsticks.copy = copy_rate();
  for (const rf_dtype dtype : {RF_F32, RF_BF16}) {
    Layer large = layer(dtype, kWidth, kInner, RF_LINEAR_NONE, kMany);
    const Packed packed = large.pack();
    const double seconds = seconds_of([&] { large.run(packed, kMany); });
    yardsticks.products[dtype == RF_F32 ? 0 : 1] = 2.0 * kMany * kWidth * kInner / seconds / kGiga;
  }
  std::printf("%s; 1024 rows: float32 %.0f, bfloat16 %.0f GFLOP/s; copy %.1f GB/s\n", rf_target(),
              yardsticks.products[0], yardsticks.products[1], yardsticks.copy);
  std::printf(
      "      layer           rows | warm: GFLOP/s, share; GB/s, share of a read        | cold: share of a copy\n");
  struct Shape {
    int64_t in, out;
    rf_linear_activation activation;
  };
  for (const rf_dtype dtype : {RF_F32, RF_BF16}) {
    for (const Shape& shape : {Shape{kWidth, kWidth, RF_LINEAR_NONE}, Shape{kWidth, 3 * kWidth, RF_LINEAR_NONE},
                               Shape{kWidth, kInner, RF_LINEAR_NONE}, Shape{kWidth, kInner, RF_LINEAR_GELU_ERF},
                               Shape{kInner, kWidth, RF_LINEAR_NONE}, Shape{kWidth, kVocabulary, RF_LINEAR_NONE}}) {
      Layer one = layer(dtype, shape.in, shape.out, shape.activation, *std::max_element(rows.begin(), rows.end()) + 64);
      time_layer(one, rows, yardsticks);
    }
  }
}
