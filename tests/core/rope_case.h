// One rotary call as a test writes it: shapes, strides and contents with defaults, run by the kernels or the float64
// loops.
#pragma once

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ref/convert.h"
#include "rf/rope.h"
#include "tolerances.h"

namespace rf::tests {

struct RopeDeleter {
  void operator()(rf_rope* rope) const { rf_rope_destroy(rope); }
};
using Rope = std::unique_ptr<rf_rope, RopeDeleter>;

struct Frequencies {
  std::vector<double> hi, lo;
  explicit Frequencies(int64_t rotary_dim, double base = 10000)
      : hi(static_cast<size_t>(rotary_dim / 2)), lo(hi.size()) {
    EXPECT_EQ(rf_rope_frequencies(base, rotary_dim, hi.data(), lo.data()), RF_OK) << rf_last_error();
  }
  int64_t count() const { return static_cast<int64_t>(hi.size()); }
};

inline Rope make_rope(const Frequencies& frequencies, double scale = 1, int64_t max_cached_rows = 0) {
  rf_rope* rope = nullptr;
  EXPECT_EQ(
      rf_rope_create(frequencies.hi.data(), frequencies.lo.data(), frequencies.count(), scale, max_cached_rows, &rope),
      RF_OK)
      << rf_last_error();
  return Rope(rope);
}

inline int64_t bytes_of(rf_dtype dtype) { return dtype == RF_F64 ? 8 : dtype == RF_F32 ? 4 : 2; }

inline double eps_of(rf_dtype dtype) {
  return dtype == RF_F64 ? kEpsF64 : dtype == RF_F32 ? kEpsF32 : dtype == RF_BF16 ? kEpsBf16 : kEpsF16;
}

// Elements of one type, held as bytes.
struct Elements {
  rf_dtype dtype;
  std::vector<char> bytes;
  Elements(rf_dtype type, int64_t count) : dtype(type), bytes(static_cast<size_t>(count * bytes_of(type))) {}
  double at(int64_t i) const { return ref::load(dtype, bytes.data(), i); }
  void set(int64_t i, double value) { ref::store(dtype, bytes.data(), i, value); }
  int64_t count() const { return static_cast<int64_t>(bytes.size()) / bytes_of(dtype); }
  // Values about 1 in magnitude, different everywhere.
  void fill() {
    for (int64_t i = 0; i < count(); ++i) set(i, 2 * std::sin(1.0 + 0.7 * static_cast<double>(i % 100003)));
  }
};

// Contiguous [B, T, H, D] unless a test says otherwise.
template <class Args = rf_rope_args>
Args contiguous_args(const Elements& x, Elements& y, int64_t batch, int64_t tokens, int64_t heads, int64_t head_dim,
                     rf_rope_layout layout) {
  Args args = {};
  args.struct_size = sizeof(args);
  args.dtype = x.dtype, args.layout = layout, args.direction = RF_ROPE_FORWARD;
  args.batch = batch, args.tokens = tokens, args.heads = heads, args.head_dim = head_dim;
  args.x = x.bytes.data(), args.y = y.bytes.data();
  args.x_stride_h = args.y_stride_h = head_dim;
  args.x_stride_t = args.y_stride_t = heads * head_dim;
  args.x_stride_b = args.y_stride_b = tokens * heads * head_dim;
  return args;
}

// The call was refused with a text of both parts, "[where] rule" and "got value".
inline void expect_refused(rf_status status, const std::string& rule, const std::string& got = "",
                           const std::string& where = "[") {
  EXPECT_EQ(status, RF_INVALID_ARGUMENT) << rule;
  const std::string text = rf_last_error();
  EXPECT_TRUE(text.starts_with(where)) << text;
  EXPECT_NE(text.find(rule), std::string::npos) << text;
  EXPECT_NE(text.find("got " + got), std::string::npos) << text;
}

// The instruction sets of this machine, the widest first. Under sanitizers, programs take several times as long: there
// it returns the widest and AVX2, and the baseline is tested in the release build alone.
inline std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  for (const char* name :
       {"AVX3_AMX", "AVX3_ZEN4", "AVX3_DL", "AVX3", "AVX2", "SSE4", "SSSE3", "SSE2", "NEON", "EMU128", "SCALAR"}) {
    if (rf_set_target(name) == RF_OK) names.push_back(name);
  }
  EXPECT_EQ(rf_set_target(""), RF_OK);
#ifdef __SANITIZE_ADDRESS__
  const std::string widest = names.empty() ? "" : names.front();
  std::erase_if(names, [&](const std::string& name) { return name != widest && name != "AVX2"; });
#endif
  return names;
}

inline std::vector<std::string> instruction_sets_and_ref() {
  std::vector<std::string> names = instruction_sets();
  names.emplace_back("ref");
  return names;
}

// A test on an instruction set or in the reference loops.
class TargetTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_EQ(rf_set_target(GetParam().c_str()), RF_OK) << rf_last_error(); }
  void TearDown() override {
    rf_set_target("");
    omp_set_num_threads(threads_);
  }

 private:
  int threads_ = omp_get_max_threads();
};
inline std::string name_of_target(const testing::TestParamInfo<std::string>& info) { return info.param; }

// got against want, elementwise: kRotationEps of the arithmetic times the magnitude of the terms, plus half an ulp of a
// 16-bit result. `magnitude` bounds |c x_a| + |s x_b|.
inline void expect_near(const Elements& got, const Elements& want, double magnitude, const std::string& what) {
  const double arithmetic = got.dtype == RF_F64 ? kEpsF64 : kEpsF32;
  const bool narrow = bytes_of(got.dtype) == 2;
  for (int64_t i = 0; i < got.count(); ++i) {
    // Both sides are rounded to 16 bits: they may fall on neighbours.
    const double stored = narrow ? eps_of(got.dtype) * std::abs(want.at(i)) : 0;
    ASSERT_NEAR(got.at(i), want.at(i), kRotationEps * arithmetic * magnitude + stored) << what << " element " << i;
  }
}

}  // namespace rf::tests
