// Structs of older and newer callers, for every function that takes one: the first version is enough, what it has not
// is zero, and fields that the library does not know must be zero.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "rf/attention.h"
#include "rf/linear.h"
#include "rf/linear_attention.h"
#include "rf/rope.h"
#include "rf/rope_scaling.h"
#include "rf/rows.h"

namespace rf::tests {
namespace {

using Numbers = std::vector<double>;

constexpr int64_t kRows = 2, kColumns = 4;

Numbers numbers(int64_t count, double first) {
  Numbers values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = first + 0.25 * static_cast<double>(i % 7);
  return values;
}

// The struct as a caller has it whose version is `size` bytes long, in memory that ends there.
template <class Args>
std::vector<unsigned char> version(const Args& args, size_t size, unsigned char tail = 0) {
  std::vector<unsigned char> bytes(size, tail);
  std::memcpy(bytes.data(), &args, std::min(size, sizeof args));
  std::memcpy(bytes.data(), &size, sizeof size);
  return bytes;
}

// `args` holds a call that writes `result`, with every field behind the first version at zero. first_size is a number
// and not an expression: callers compiled long ago have it in them.
template <class Args, class Call>
void expect_versions(const char* name, const Args& args, size_t first_size, Numbers& result, const Call& call) {
  SCOPED_TRACE(name);
  const auto with = [&](const std::vector<unsigned char>& bytes) {
    std::fill(result.begin(), result.end(), 77.0);
    return call(reinterpret_cast<const Args*>(bytes.data()));
  };
  const auto expect_refused = [&](const std::vector<unsigned char>& bytes, const std::string& text) {
    EXPECT_EQ(with(bytes), RF_INVALID_ARGUMENT);
    EXPECT_NE(std::string(rf_last_error()).find(text), std::string::npos) << rf_last_error();
    EXPECT_EQ(result, Numbers(result.size(), 77.0));
  };
  ASSERT_EQ(with(version(args, sizeof args)), RF_OK) << rf_last_error();
  const Numbers expected = result;
  EXPECT_NE(expected, Numbers(result.size(), 77.0));
  EXPECT_EQ(with(version(args, first_size)), RF_OK) << rf_last_error();
  EXPECT_EQ(result, expected);
  EXPECT_EQ(with(version(args, sizeof args + 24)), RF_OK) << rf_last_error();
  EXPECT_EQ(result, expected);

  const std::string of = "must be in " + std::to_string(first_size) + "..";
  expect_refused(version(args, first_size - 1), of);
  expect_refused(version(args, sizeof(size_t)), of);
  std::vector<unsigned char> never_set = version(args, sizeof args);
  std::memset(never_set.data(), 0x77, sizeof(size_t));
  expect_refused(never_set, of);
  std::vector<unsigned char> newer = version(args, sizeof args + 24);
  newer.back() = 1;
  expect_refused(newer, "must be zero after byte " + std::to_string(sizeof args));
  expect_refused(version(args, sizeof args + 1, 9), "got 9 at byte " + std::to_string(sizeof args));
  EXPECT_EQ(call(nullptr), RF_INVALID_ARGUMENT);
  const std::string where(name, std::strcspn(name, " ")), text = rf_last_error();
  EXPECT_EQ(text.find('[' + where + "] "), 0u) << text;
  EXPECT_NE(text.find("must not be NULL, got NULL"), std::string::npos) << text;
}

// Both functions of an operation: the forward's struct as the first argument of the backward too.
template <class Args, class Grads>
void expect_operation(const std::string& name, const Args& args, size_t args_size, const Grads& grads,
                      size_t grads_size, Numbers& y, Numbers& dx, rf_status (*forward)(const Args*),
                      rf_status (*backward)(const Args*, const Grads*)) {
  expect_versions((name + " forward").c_str(), args, args_size, y, forward);
  ASSERT_EQ(forward(&args), RF_OK) << rf_last_error();
  expect_versions((name + " backward").c_str(), args, args_size, dx,
                  [&](const Args* given) { return backward(given, &grads); });
  expect_versions((name + " gradients").c_str(), grads, grads_size, dx,
                  [&](const Grads* given) { return backward(&args, given); });
}

// What the structs of operations on rows have in common.
template <class Args>
Args rows_of(const Numbers& x, Numbers& y) {
  Args args{};
  args.struct_size = sizeof args, args.dtype = RF_F64, args.rows = kRows, args.columns = kColumns;
  args.x = x.data(), args.y = y.data(), args.x_stride = args.y_stride = kColumns;
  return args;
}

template <class Grads>
Grads row_gradients(const Numbers& dy, Numbers& dx) {
  Grads grads{};
  grads.struct_size = sizeof grads, grads.x_stride = grads.y_stride = kColumns;
  grads.y = dy.data(), grads.x = dx.data();
  return grads;
}

class Arguments : public testing::Test {
 protected:
  const Numbers x = numbers(kRows * kColumns, 0.5), dy = numbers(kRows * kColumns, -1);
  Numbers y = Numbers(kRows * kColumns), dx = Numbers(kRows * kColumns);
};

TEST_F(Arguments, Norm) {
  auto args = rows_of<rf_norm_args>(x, y);
  args.kind = RF_NORM_RMS;
  expect_operation("norm", args, 136, row_gradients<rf_norm_grads>(dy, dx), 80, y, dx, rf_norm_forward,
                   rf_norm_backward);
}

TEST_F(Arguments, Gelu) {
  auto args = rows_of<rf_gelu_args>(x, y);
  args.form = RF_GELU_ERF;
  expect_operation("gelu", args, 72, row_gradients<rf_gelu_grads>(dy, dx), 48, y, dx, rf_gelu_forward,
                   rf_gelu_backward);
}

TEST_F(Arguments, Softmax) {
  expect_operation("softmax", rows_of<rf_softmax_args>(x, y), 64, row_gradients<rf_softmax_grads>(dy, dx), 40, y, dx,
                   rf_softmax_forward, rf_softmax_backward);
}

TEST_F(Arguments, CrossEntropy) {
  const int64_t targets[kRows] = {1, 3};
  Numbers loss(kRows), log_sum(kRows);
  rf_cross_entropy_args args{};
  args.struct_size = sizeof args, args.dtype = RF_F64, args.rows = kRows, args.columns = kColumns;
  args.logits = x.data(), args.logits_stride = kColumns, args.targets = targets, args.ignore_index = -1;
  args.loss = loss.data(), args.log_sum = log_sum.data();
  rf_cross_entropy_grads grads{};
  grads.struct_size = sizeof grads;
  grads.loss = dy.data(), grads.loss_stride = 1, grads.logits = dx.data(), grads.logits_stride = kColumns;
  expect_operation("cross_entropy", args, 80, grads, 40, loss, dx, rf_cross_entropy_forward, rf_cross_entropy_backward);
}

TEST_F(Arguments, Linear) {
  const Numbers weight = numbers(kColumns * kColumns, -0.5);
  rf_linear_args args{};
  args.struct_size = sizeof args, args.dtype = RF_F64, args.rows = kRows, args.in = args.out = kColumns;
  args.x = x.data(), args.weight = weight.data(), args.y = y.data();
  args.x_stride = args.weight_stride = args.y_stride = kColumns;
  expect_operation("linear", args, 104, row_gradients<rf_linear_grads>(dy, dx), 64, y, dx, rf_linear_forward,
                   rf_linear_backward);
}

// Fields of [B,T,H,D] arrays: one entry and one head of kRows tokens.
template <class Args>
Args attention_of(const Numbers& x, Numbers& out) {
  Args args{};
  args.struct_size = sizeof args, args.dtype = RF_F64, args.batch = args.heads = args.key_heads = 1;
  args.queries = args.keys = kRows, args.value_dim = kColumns;
  args.q = args.k = args.v = x.data(), args.out = out.data();
  args.q_stride_t = args.k_stride_t = args.v_stride_t = args.out_stride_t = kColumns;
  return args;
}

template <class Grads>
Grads attention_gradients(const Numbers& dy, Numbers& dq) {
  Grads grads{};
  grads.struct_size = sizeof grads, grads.out_stride_t = kColumns;
  grads.out = dy.data(), grads.q = dq.data();
  return grads;
}

TEST_F(Arguments, Attention) {
  const int64_t positions[kRows] = {0, 1};
  auto args = attention_of<rf_attention_args>(x, y);
  args.head_dim = kColumns, args.scale = 0.5;
  args.query_positions = args.key_positions = positions;
  expect_operation("attention", args, 688, attention_gradients<rf_attention_grads>(dy, dx), 200, y, dx,
                   rf_attention_forward, rf_attention_backward);
}

// What is not set is absent, the window too: with a scale of 0 each output is the mean of all values.
TEST_F(Arguments, ZerosOfAttentionAreNoWindow) {
  const int64_t positions[kRows] = {0, 1};
  auto args = attention_of<rf_attention_args>(x, y);
  args.head_dim = kColumns;
  args.query_positions = args.key_positions = positions;
  ASSERT_EQ(rf_attention_forward(&args), RF_OK) << rf_last_error();
  for (int64_t i = 0; i < kRows * kColumns; ++i) {
    EXPECT_EQ(y[i], (x[i % kColumns] + x[i % kColumns + kColumns]) / 2) << i;
  }
}

TEST_F(Arguments, LinearAttention) {
  auto args = attention_of<rf_linear_attention_args>(x, y);
  args.features = kColumns;
  args.direction = RF_LINEAR_BIDIRECTIONAL, args.denominator = RF_DENOMINATOR_PLAIN;
  args.feature_map = RF_FEATURES_RELU;
  expect_operation("linear_attention", args, 328, attention_gradients<rf_linear_attention_grads>(dy, dx), 64, y, dx,
                   rf_linear_attention_forward, rf_linear_attention_backward);
}

template <class Args>
Args rotary_of(const Numbers& x, Numbers& y) {
  Args args{};
  args.struct_size = sizeof args, args.dtype = RF_F64;
  args.layout = RF_ROPE_PAIRS, args.direction = RF_ROPE_FORWARD;
  args.batch = args.heads = 1, args.tokens = kRows, args.head_dim = kColumns;
  args.x = x.data(), args.y = y.data(), args.x_stride_t = args.y_stride_t = kColumns;
  return args;
}

TEST_F(Arguments, Rotation) {
  const double hi[] = {1, 0.01};
  rf_rope* rope = nullptr;
  ASSERT_EQ(rf_rope_create(hi, nullptr, 2, 1, 0, &rope), RF_OK) << rf_last_error();
  auto args = rotary_of<rf_rope_args>(x, y);
  args.position_offset = 3;
  expect_versions("rope", args, 152, y, [&](const rf_rope_args* given) { return rf_rope_apply(rope, given); });
  rf_rope_destroy(rope);

  const Numbers cos = numbers(2 * kRows, 0.1), sin = numbers(2 * kRows, 0.3);
  auto rows = rotary_of<rf_rope_rows_args>(x, y);
  rows.num_freqs = 2, rows.cos = cos.data(), rows.sin = sin.data(), rows.row_stride_t = 2;
  expect_versions("rotate", rows, 160, y, rf_rope_rotate);
}

TEST_F(Arguments, RotaryScaling) {
  rf_rope_scaling scaling{};
  scaling.struct_size = sizeof scaling, scaling.type = RF_ROPE_SCALING_LINEAR, scaling.base = 1e4, scaling.factor = 2;
  Numbers hi(4), lo(4);
  expect_versions("rope scaling", scaling, 104, hi, [&](const rf_rope_scaling* given) {
    return rf_rope_scaled_frequencies(given, 8, hi.data(), lo.data());
  });
}

TEST_F(Arguments, TheVersionIsThatOfTheProject) {
  int major = -1, minor = -1, patch = -1, length = 0;
  ASSERT_EQ(std::sscanf(rf_version(), "%d.%d.%d%n", &major, &minor, &patch, &length), 3) << rf_version();
  EXPECT_EQ(static_cast<size_t>(length), std::strlen(rf_version()));
}

}  // namespace
}  // namespace rf::tests
