// What callers of packed weights rely on: the bits of a row are the same in every call, and a call allocates nothing.
#include <omp.h>

#include <cstring>

#include "common/cpu_features.h"
#include "core/allocation_count.h"
#include "core/linear_layer_case.h"
#include "core/row_case.h"
#include "rf/linear.h"

namespace rf::tests {
namespace {

class PackedLinear : public TargetTest {};

Packed pack(const rf_linear_args& call) {
  rf_linear_packed* made = nullptr;
  EXPECT_EQ(rf_linear_pack(call.dtype, call.in, call.out, call.weight, call.weight_stride, &made), RF_OK)
      << rf_last_error();
  return Packed(made);
}

// A layer with packed weights, any rows of which are one call.
class Layer {
 public:
  explicit Layer(LinearLayerCase linear, rf_linear_activation activation = RF_LINEAR_NONE, rf_gelu_form gate = {})
      : case_(std::move(linear)), packed_(pack(case_.args())), activation_(activation), gate_(gate) {
    std::fill(case_.weight.bytes.begin(), case_.weight.bytes.end(), 0);  // nothing of it is kept
  }

  const Elements& forward(int64_t first, int64_t rows) {
    return case_.forward_packed(packed_.get(), first, rows, activation_, gate_);
  }
  const LinearLayerCase& linear() const { return case_; }

 private:
  LinearLayerCase case_;
  Packed packed_;
  rf_linear_activation activation_;
  rf_gelu_form gate_;
};

TEST_P(PackedLinear, EqualsFloat64) {
  for (const rf_dtype dtype : kLayerTypes) {
    for (const auto& [rows, in, out] : std::initializer_list<std::array<int64_t, 3>>{
             {1, 1, 1}, {3, 0, 7}, {5, 33, 65}, {16, 600, 70}, {19, 1200, 70}, {129, 64, 20}}) {
      LinearLayerCase linear(dtype, rows, in, out);
      linear.forward_packed(pack(linear.args()).get(), 0, rows);
      expect_right_forward(linear, linear.text());
    }
  }
}

TEST_P(PackedLinear, GivesTheBitsOfTheProductThatIsNotPacked) {
  for (const rf_dtype dtype : kLayerTypes) {
    // There weights that are not packed are multiplied as floats.
    if (dtype == RF_BF16 && GetParam() == "AVX3" && !core::has_fast_bf16_pairs()) continue;
    LinearLayerCase plain(dtype, 70, 1100, 1100);
    ASSERT_STREQ(rf_linear_backend(dtype, 70, 1100, 1100), "plain");
    const rf_linear_args call = plain.args();
    ASSERT_EQ(rf_linear_forward(&call), RF_OK) << rf_last_error();
    EXPECT_EQ(plain.y.bytes, Layer(plain).forward(0, 70).bytes) << plain.text();
  }
}

// Rows of one call, of calls of their own, and of calls with any neighbours.
TEST_P(PackedLinear, TheBitsOfARowDependOnNothingElse) {
  constexpr int64_t kRows = 200;
  std::mt19937 random(3);
  std::vector<int64_t> counts = {200, 129, 65, 64, 17, 16, 15, 13, 12, 7, 6, 5, 4, 3, 2};
  for (int i = 0; i < 4; ++i) counts.push_back(1 + static_cast<int64_t>(random() % kRows));
  // Two chunks of the depth, halves of pairs, parts of vectors and blocks, rows that are aligned to their element only.
  for (const auto& [in, out, gap] :
       std::initializer_list<std::array<int64_t, 3>>{{64, 130, 0}, {600, 70, 0}, {1090, 33, 3}, {33, 300, 0}}) {
    for (const rf_dtype dtype : kLayerTypes) {
      const auto activation = in == 600 ? RF_LINEAR_GELU_ERF : RF_LINEAR_NONE;
      const LinearLayerCase linear(dtype, kRows, in, out, gap);
      Layer alone(linear, activation), together(linear, activation);
      omp_set_num_threads(1);
      for (int64_t r = 0; r < kRows; ++r) alone.forward(r, 1);
      for (const int64_t count : counts) {
        omp_set_num_threads(1 + static_cast<int>(random() % 3));
        const auto first = static_cast<int64_t>(random() % static_cast<unsigned>(kRows - count + 1));
        const Elements& got = together.forward(first, count);
        const auto row_bytes = static_cast<size_t>((out + gap) * bytes_of(dtype));
        const size_t begin = static_cast<size_t>(first) * row_bytes;
        ASSERT_EQ(
            std::memcmp(&got.bytes[begin], &alone.linear().y.bytes[begin], static_cast<size_t>(count) * row_bytes), 0)
            << linear.text() << ": rows " << first << " to " << first + count;
      }
    }
  }
}

TEST_P(PackedLinear, AGatedUnitIsThatOfTheSums) {
  constexpr int64_t kRows = 70, kOut = 384, kGates = 32;
  for (const rf_gelu_form form : {RF_GELU_ERF, RF_GELU_TANH, RF_GELU_SILU}) {
    const LinearLayerCase linear(RF_F32, kRows, 600, kOut);
    Layer plain(linear), gated(linear, RF_LINEAR_NONE, form);
    const Elements& sums = plain.forward(0, kRows);
    const Elements& got = gated.forward(0, kRows);
    std::vector<float> want(kRows * kGates);
    for (int64_t group = 0; group < kOut / 2 / kGates; ++group) {
      rf_gelu_args gelu = {};
      gelu.struct_size = sizeof gelu, gelu.dtype = RF_F32, gelu.form = form, gelu.rows = kRows;
      gelu.columns = gelu.y_stride = kGates, gelu.x_stride = gelu.factor_stride = kOut;
      gelu.x = sums.bytes.data() + group * 2 * kGates * 4;
      gelu.factor = sums.bytes.data() + (group * 2 + 1) * kGates * 4;
      gelu.y = want.data();
      ASSERT_EQ(rf_gelu_forward(&gelu), RF_OK) << rf_last_error();
      for (int64_t i = 0; i < kRows * kGates; ++i) {
        ASSERT_EQ(got.at(i / kGates * kOut + group * kGates + i % kGates), want[i])
            << "form " << form << " group " << group << " element " << i;
      }
    }
  }
}

TEST_P(PackedLinear, ACallAllocatesNothing) {
  if (!counts_allocations()) GTEST_SKIP() << "calls of malloc cannot be counted here";
  for (const rf_dtype dtype : kLayerTypes) {
    Layer layer(LinearLayerCase(dtype, 150, 600, 130), RF_LINEAR_GELU_ERF);
    layer.forward(0, 1);
    const int64_t work = rf_memory_held().work_bytes, before = allocations();
    for (const int64_t rows : {1, 7, 16, 64, 150, 3}) layer.forward(0, rows);
    EXPECT_EQ(allocations(), before) << layer.linear().text();
    EXPECT_EQ(rf_memory_held().work_bytes, work);
  }
  const int64_t before = allocations();
  const Layer another(LinearLayerCase(RF_F32, 1, 8, 8));
  EXPECT_GT(allocations(), before) << "the count must count";
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, PackedLinear, testing::ValuesIn(instruction_sets()), name_of_target);

}  // namespace
}  // namespace rf::tests
