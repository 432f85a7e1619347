// Linear layers with weights packed as int8: every instruction set against loops written from the definition in
// rf/linear.h with exact sums, and its promises (bits, strides, extents, numbers that are none).
#include <omp.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <random>

#include "core/linear_layer_case.h"
#include "core/row_case.h"

namespace rf::tests {
namespace {

constexpr float kNanF = std::numeric_limits<float>::quiet_NaN();

int64_t nearest(float value) {
  const float below = std::floor(value), rest = value - below;
  const auto whole = static_cast<int64_t>(below);
  return rest > 0.5f || (rest == 0.5f && whole % 2 != 0) ? whole + 1 : whole;
}

// Whole numbers times a scale.
struct Quantized {
  std::vector<int64_t> values;
  float scale = 0;
};

Quantized quantized_weight(const std::vector<float>& row) {
  float largest = 0;
  for (const float value : row) largest = std::max(largest, std::abs(value));
  Quantized result{{}, std::max(largest / 127.0f, std::numeric_limits<float>::min())};
  for (const float value : row) result.values.push_back(nearest(value / result.scale));
  return result;
}

Quantized quantized_input(const std::vector<float>& row) {
  float least = 0, most = 0;
  for (const float value : row) {
    if (!std::isfinite(value)) return {std::vector<int64_t>(row.size()), kNanF};
    least = std::min(least, value);
    most = std::max(most, value);
  }
  const float low = least / 255.0f, high = most / 255.0f;
  Quantized result{{}, std::max(high - low, std::numeric_limits<float>::min())};
  const float inverse = 1.0f / result.scale;
  const int64_t zero = nearest(-least * inverse);
  for (const float value : row) {
    const float scaled = value * inverse;
    result.values.push_back(std::min<int64_t>(nearest(scaled) + zero, 255) - zero);
  }
  return result;
}

struct Int8Case {
  Rows x, y;
  std::vector<float> weight, bias;
  std::vector<float> input_scales;  // empty: none
  int64_t weight_stride;
  Packed packed;

  Int8Case(rf_dtype dtype, int64_t rows, int64_t in, int64_t out, uint64_t seed = 1, int64_t gap = 0)
      : x(dtype, rows, in, gap), y(dtype, rows, out, gap), weight_stride(in + gap) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal;
    x.fill(seed, 0.1, 1);
    weight.assign(static_cast<size_t>(out * weight_stride), kNanF);  // where it may not be read
    for (int64_t j = 0; j < out; ++j) {
      for (int64_t i = 0; i < in; ++i) set_weight(j, i, static_cast<float>(normal(random)));
      bias.push_back(static_cast<float>(normal(random)));
    }
  }
  void set_weight(int64_t j, int64_t i, float value) { weight[j * weight_stride + i] = value; }
  void pack() {
    rf_linear_packed* made = nullptr;
    EXPECT_EQ(rf_linear_pack_int8(x.columns, y.columns, weight.data(), weight_stride,
                                  input_scales.empty() ? nullptr : input_scales.data(), &made),
              RF_OK)
        << rf_last_error();
    packed.reset(made);
  }
  rf_linear_args args() {
    rf_linear_args args = {};
    args.struct_size = sizeof args, args.dtype = x.data.dtype;
    args.rows = x.rows, args.in = x.columns, args.out = y.columns;
    args.x = x.pointer(), args.x_stride = x.stride, args.y = y.pointer(), args.y_stride = y.stride;
    args.packed = packed.get(), args.bias = bias.data();
    return args;
  }
  void run(rf_linear_activation activation = RF_LINEAR_NONE) {
    if (packed == nullptr) pack();
    rf_linear_args call = args();
    call.activation = activation;
    ASSERT_EQ(rf_linear_forward(&call), RF_OK) << rf_last_error();
  }
  std::vector<float> input_row(int64_t row) const {
    std::vector<float> values;
    for (int64_t i = 0; i < x.columns; ++i) {
      const float reciprocal = input_scales.empty() ? 1 : 1 / input_scales[i];
      values.push_back(static_cast<float>(x.at(row, i)) * reciprocal);
    }
    return values;
  }
  std::vector<float> weight_row(int64_t j) const {
    const auto first = weight.begin() + j * weight_stride;
    std::vector<float> values(first, first + x.columns);
    for (size_t i = 0; i < input_scales.size(); ++i) values[i] *= input_scales[i];
    return values;
  }
  std::string text() const {
    return "dtype " + std::to_string(x.data.dtype) + " rows " + std::to_string(x.rows) + " in " +
           std::to_string(x.columns) + " out " + std::to_string(y.columns) + " target " + rf_target();
  }
};

double activated(rf_linear_activation activation, double t) {
  const double kTanh = std::sqrt(2 / M_PI);
  switch (activation) {
    case RF_LINEAR_NONE: break;
    case RF_LINEAR_GELU_ERF: return t / 2 * std::erfc(-t / std::sqrt(2.0));
    case RF_LINEAR_GELU_TANH: return t / 2 * (1 + std::tanh(kTanh * (t + 0.044715 * t * t * t)));
  }
  return t;
}

// kInt8Eps for the float operations behind an exact sum, then those of GELU, then the rounding of y.
void expect_right(const Int8Case& c, rf_linear_activation activation = RF_LINEAR_NONE) {
  std::vector<Quantized> weights;
  for (int64_t j = 0; j < c.y.columns; ++j) weights.push_back(quantized_weight(c.weight_row(j)));
  for (int64_t r = 0; r < c.x.rows; ++r) {
    const Quantized x = quantized_input(c.input_row(r));
    for (int64_t j = 0; j < c.y.columns; ++j) {
      const Quantized& w = weights[j];
      int64_t sum = 0;
      for (size_t i = 0; i < x.values.size(); ++i) sum += x.values[i] * w.values[i];
      const double scaled = static_cast<double>(sum) * static_cast<double>(x.scale) * static_cast<double>(w.scale);
      const double bias = c.bias[j], t = scaled + bias, want = activated(activation, t);
      if (std::isnan(want)) {
        ASSERT_TRUE(std::isnan(c.y.at(r, j))) << c.text() << " row " << r << " column " << j;
        continue;
      }
      const bool plain = activation == RF_LINEAR_NONE;
      const double sums = kInt8Eps * (std::abs(scaled) + std::abs(bias)) * (plain ? 1 : kGeluSlope);
      const double gelu = plain ? 0 : kGeluEps * std::abs(want) * (1 + t * t);
      const double stored = c.y.data.dtype == RF_F32 ? 0 : eps_of(c.y.data.dtype) * std::abs(want);
      const double least = eps_of(c.y.data.dtype) * std::numeric_limits<float>::min();
      ASSERT_NEAR(c.y.at(r, j), want, kEpsF32 * (sums + gelu) + stored + least)
          << c.text() << " row " << r << " column " << j;
    }
  }
  for (int64_t r = 0; r < c.y.rows; ++r) {
    for (int64_t g = c.y.columns; g < c.y.stride; ++g) ASSERT_EQ(c.y.at(r, g), Rows::kUntouched) << c.text();
  }
}

using LinearInt8 = TargetTest;

// Every number of rows up to 19 of any extent, and some more; one of them is zeros.
TEST_P(LinearInt8, EqualsLoopsWithExactSums) {
  std::mt19937_64 random(7);
  const auto extent = [&](uint64_t most) { return static_cast<int64_t>(random() % most) + 1; };
  std::vector<std::array<int64_t, 4>> extents = {{1, 1, 1, 0}, {2, 64, 48, 0}, {8, 129, 49, 0}, {67, 257, 70, 0}};
  for (int64_t rows = 1; rows <= 19; ++rows) extents.push_back({rows, extent(200), extent(150), rows % 4});
  for (size_t i = 0; i < extents.size(); ++i) {
    const auto& [rows, in, out, gap] = extents[i];
    Int8Case c(kLayerTypes[i % 3], rows, in, out, i, gap);
    for (int64_t k = 0; k < in; ++k) c.x.set(rows - 1, k, i % 5 == 1 ? 0 : c.x.at(rows - 1, k));
    c.run();
    expect_right(c);
  }
}

// Inputs of which some are a hundred times the others: their scales bring the product closer to the exact one.
TEST_P(LinearInt8, InputScales) {
  std::mt19937_64 random(11);
  for (const rf_dtype dtype : kLayerTypes) {
    Int8Case plain(dtype, 9, 150, 50, 3), scaled = Int8Case(dtype, 9, 150, 50, 3);
    for (Int8Case* c : {&plain, &scaled}) {
      for (int64_t r = 0; r < 9; ++r) {
        for (int64_t i = 0; i < 150; i += 30) c->x.set(r, i, 100 * c->x.at(r, i));
      }
    }
    for (int64_t i = 0; i < 150; ++i) {
      scaled.input_scales.push_back(static_cast<float>(random() % 1000 + 500) / 1000 * (i % 30 == 0 ? 30 : 1));
    }
    const auto error = [&](const Int8Case& c) {
      double sum = 0;
      for (int64_t r = 0; r < 9; ++r) {
        for (int64_t j = 0; j < 50; ++j) {
          double exact = c.bias[j];
          for (int64_t i = 0; i < 150; ++i) exact += c.x.at(r, i) * c.weight[j * c.weight_stride + i];
          sum += std::abs(c.y.at(r, j) - exact);
        }
      }
      return sum;
    };
    plain.run();
    scaled.run();
    expect_right(plain);
    expect_right(scaled);
    if (dtype == RF_F32) {
      EXPECT_LT(error(scaled), error(plain) / 2) << scaled.text();
    }
  }
}

TEST_P(LinearInt8, ActivatesBeforeRounding) {
  for (const rf_dtype dtype : kLayerTypes) {
    for (const rf_linear_activation activation : {RF_LINEAR_GELU_ERF, RF_LINEAR_GELU_TANH}) {
      Int8Case c(dtype, 19, 33, 101, 3, 2);
      for (float& value : c.weight) value *= 0.2f;
      c.run(activation);
      expect_right(c, activation);
    }
  }
}

// All bytes at their ends, over the deepest sum that there may be.
TEST_P(LinearInt8, LargestSumsAreExact) {
  constexpr int64_t kDepth = int64_t{1} << 16;
  for (const auto& [x, w] : {std::pair{1.0, 1.0f}, {-1.0, 1.0f}}) {
    Int8Case c(RF_F32, 2, kDepth, 2);
    for (int64_t i = 0; i < kDepth; ++i) {
      c.x.set(0, i, x);
      c.x.set(1, i, i % 2 == 0 ? x : -x / 3);
      c.set_weight(0, i, w);
      c.set_weight(1, i, i % 2 == 0 ? w : -w);
    }
    c.run();
    expect_right(c);
  }
}

TEST_P(LinearInt8, NumbersOfAnyMagnitude) {
  for (const double magnitude : {1e-45, 1e-40, 1e-38, 1e-30, 1e30, 1.5e38, 3.4e38}) {
    Int8Case c(RF_F32, 3, 21, 50);
    for (int64_t i = 0; i < 21; ++i) c.x.set(1, i, c.x.at(1, i) / 4 * magnitude);
    c.x.set(1, 0, magnitude);
    c.x.set(1, 1, -magnitude);
    for (float& value : c.weight) value *= magnitude < 1 ? 1e30f : 1e-3f;
    std::fill(c.bias.begin(), c.bias.end(), 0.0f);
    for (int64_t i = 0; i < 21; ++i) c.set_weight(3, i, static_cast<float>(1e-45));
    c.run();
    expect_right(c);
  }
}

TEST_P(LinearInt8, NanAndInfinityFillTheirRow) {
  for (const rf_linear_activation activation : {RF_LINEAR_NONE, RF_LINEAR_GELU_ERF}) {
    for (const double bad : {std::nan(""), -std::nan(""), HUGE_VAL, -HUGE_VAL}) {
      Int8Case c(std::isnan(bad) ? RF_F32 : RF_BF16, 5, 37, 60);
      c.x.set(2, 36, bad);
      c.x.set(4, 0, bad);
      c.run(activation);
      expect_right(c, activation);
    }
  }
}

TEST_P(LinearInt8, EmptyExtentsAndNoBias) {
  for (const rf_dtype dtype : kLayerTypes) {
    for (const auto& [rows, in, out] : std::initializer_list<std::array<int64_t, 3>>{{0, 5, 3}, {5, 0, 3}, {5, 3, 0}}) {
      Int8Case c(dtype, rows, in, out);
      c.run();
      expect_right(c);
    }
    Int8Case c(dtype, 5, 6, 7);
    c.pack();
    std::fill(c.bias.begin(), c.bias.end(), 0.0f);
    rf_linear_args call = c.args();
    call.bias = nullptr;
    ASSERT_EQ(rf_linear_forward(&call), RF_OK) << rf_last_error();
    expect_right(c);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, LinearInt8, testing::ValuesIn(instruction_sets_and_ref()), name_of_target);

TEST(LinearInt8Bits, AreTheSameOnEveryInstructionSet) {
  for (const rf_dtype dtype : kLayerTypes) {
    for (const auto& [rows, in, out] : std::initializer_list<std::array<int64_t, 3>>{{1, 770, 100}, {70, 333, 145}}) {
      Int8Case first(dtype, rows, in, out);
      first.run();
      for (const std::string& target : instruction_sets()) {
        ASSERT_EQ(rf_set_target(target.c_str()), RF_OK);
        Int8Case packed_here(dtype, rows, in, out);
        packed_here.run();
        EXPECT_EQ(first.y.data.bytes, packed_here.y.data.bytes) << packed_here.text();
        Int8Case packed_elsewhere(dtype, rows, in, out);
        packed_elsewhere.packed.swap(first.packed);
        packed_elsewhere.run();
        EXPECT_EQ(first.y.data.bytes, packed_elsewhere.y.data.bytes) << packed_elsewhere.text();
        packed_elsewhere.packed.swap(first.packed);
        ASSERT_EQ(rf_set_target(""), RF_OK);
      }
    }
  }
}

TEST(LinearInt8Bits, AreTheSameForAnyThreads) {
  const int threads = omp_get_max_threads();
  for (const rf_linear_activation activation : {RF_LINEAR_NONE, RF_LINEAR_GELU_TANH}) {
    for (const auto& [rows, in, out] :
         std::initializer_list<std::array<int64_t, 3>>{{1, 800, 700}, {300, 600, 700}, {4200, 40, 130}}) {
      Int8Case one(RF_BF16, rows, in, out), several(RF_BF16, rows, in, out);
      omp_set_num_threads(1);
      one.run(activation);
      for (const int count : {2, 3}) {
        omp_set_num_threads(count);
        several.run(activation);
        EXPECT_EQ(one.y.data.bytes, several.y.data.bytes) << one.text() << " threads " << count;
      }
      omp_set_num_threads(threads);
    }
  }
}

// More rows than are quantised at once, and every row alone.
TEST(LinearInt8Bits, OfARowDependOnItAlone) {
  for (const auto& [rows, in, out] : std::initializer_list<std::array<int64_t, 3>>{{4170, 9, 50}, {75, 190, 201}}) {
    for (const rf_linear_activation activation : {RF_LINEAR_NONE, RF_LINEAR_GELU_ERF}) {
      Int8Case all(RF_F32, rows, in, out);
      all.run(activation);
      const int64_t step = rows / 31;  // of 4170: the last one is row 4154
      for (int64_t r = 0; r < rows; r += step) {
        Int8Case one(RF_F32, 1, in, out);
        for (int64_t i = 0; i < in; ++i) one.x.set(0, i, all.x.at(r, i));
        one.packed.swap(all.packed);
        one.run(activation);
        one.packed.swap(all.packed);
        for (int64_t j = 0; j < out; ++j) ASSERT_EQ(one.y.at(0, j), all.y.at(r, j)) << all.text() << " row " << r;
      }
    }
  }
}

TEST(LinearInt8Errors, Packing) {
  std::vector<float> weight(30, 1.0f);
  rf_linear_packed* made = nullptr;
  expect_refused(rf_linear_pack_int8(6, 5, weight.data(), 6, nullptr, nullptr), "packed must not be NULL", "NULL");
  expect_refused(rf_linear_pack_int8(6, 5, nullptr, 6, nullptr, &made), "weight must not be NULL", "NULL");
  expect_refused(rf_linear_pack_int8(6, 5, weight.data(), 3, nullptr, &made), "stride of weight must be", "3");
  expect_refused(rf_linear_pack_int8(-1, 5, weight.data(), 6, nullptr, &made), "in must be in 0..2^40", "-1");
  expect_refused(rf_linear_pack_int8((int64_t{1} << 16) + 1, 0, weight.data(), 0, nullptr, &made),
                 "in must be in 0..2^16 for int8", "65537");
  for (const float bad : {kNanF, HUGE_VALF, -HUGE_VALF}) {
    weight[4 * 6 + 5] = bad;
    expect_refused(rf_linear_pack_int8(6, 5, weight.data(), 6, nullptr, &made),
                   "weight must be finite to be packed as int8", "NaN or infinity in row 4");
  }
  weight[4 * 6 + 5] = 1;
  for (const float bad : {0.0f, -1.0f, kNanF, HUGE_VALF, 0x1p65f}) {
    const std::vector<float> scales{1, 1, bad, 1, 1, 1};
    expect_refused(rf_linear_pack_int8(6, 5, weight.data(), 6, scales.data(), &made),
                   "input_scales must be in 2^-64..2^64", "");
  }
  EXPECT_EQ(made, nullptr);
}

TEST(LinearInt8Errors, Call) {
  Int8Case c(RF_F32, 4, 6, 5);
  c.pack();
  const auto refuse = [&](auto change, const std::string& rule, const std::string& got) {
    rf_linear_args args = c.args();
    change(args);
    expect_refused(rf_linear_forward(&args), rule, got, "[linear] ");
  };
  refuse([](auto& x) { x.in = 5; }, "packed must be of the in and out of the call = 5, 5", "6, 5");
  refuse([](auto& x) { x.out = 4; }, "packed must be of the in and out of the call = 6, 4", "6, 5");
  refuse([&](auto& x) { x.weight = c.weight.data(); }, "weight must be NULL where packed is set", "both");
  refuse([](auto& x) { x.x = nullptr; }, "x must not be NULL", "NULL");
  std::vector<double> bias(5), x(24), y(20);
  refuse([&](auto& call) { call.dtype = RF_F64, call.x = x.data(), call.y = y.data(), call.bias = bias.data(); },
         "dtype must be RF_F32, RF_BF16 or RF_F16 for a weight packed as int8", "2");
  rf_linear_args args = c.args();
  rf_linear_grads grads = {};
  grads.struct_size = sizeof grads;
  grads.y = c.y.pointer(), grads.y_stride = 5;
  expect_refused(rf_linear_backward(&args, &grads), "packed must be NULL for the backward", "one");
}

}  // namespace
}  // namespace rf::tests
