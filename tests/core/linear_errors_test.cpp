// Every rule of the linear layer, broken once: the status, and the text "[linear] rule, got value".
#include <functional>

#include "core/linear_layer_case.h"

namespace rf::tests {
namespace {

class LinearErrors : public testing::Test {
 protected:
  using Args = std::function<void(rf_linear_args&)>;
  using Both = std::function<void(rf_linear_args&, rf_linear_grads&)>;

  // A good call of which one thing is then changed.
  void refuse_forward(const Args& change, const std::string& rule, const std::string& got) {
    rf_linear_args args = linear_.args();
    change(args);
    expect_refused(rf_linear_forward(&args), rule, got, "[linear] ");
  }
  void refuse_backward(const Both& change, const std::string& rule, const std::string& got) {
    rf_linear_args args = linear_.args();
    rf_linear_grads grads = linear_.grads();
    change(args, grads);
    expect_refused(rf_linear_backward(&args, &grads), rule, got, "[linear] ");
  }

  LinearLayerCase linear_{RF_F32, 4, 6, 5};
};

const void* misaligned(const void* data) { return static_cast<const char*>(data) + 1; }

TEST_F(LinearErrors, Choices) {
  refuse_forward([](auto& x) { x.dtype = static_cast<rf_dtype>(0); }, "dtype must be", "0");
  refuse_forward([](auto& x) { x.weight_dtype = RF_BF16; }, "weight_dtype must be 0, dtype, or RF_F32",
                 "3 for dtype 1");
  refuse_forward([](auto& x) { x.activation = static_cast<rf_linear_activation>(3); }, "activation must be", "3");
  refuse_forward([](auto& x) { x.gate = RF_GELU_SILU; }, "gate must be 0, or a form with packed weights",
                 "3 for out = 5");
  refuse_backward([](auto& x, auto&) { x.gate = RF_GELU_ERF; }, "gate must be 0 for the backward", "1");
}

TEST_F(LinearErrors, Extents) {
  refuse_forward([](auto& x) { x.rows = -1; }, "rows must be in 0..2^40", "-1");
  refuse_forward([](auto& x) { x.in = -2; }, "in must be in 0..2^40", "-2");
  refuse_forward([](auto& x) { x.out = int64_t{1} << 41; }, "out must be in 0..2^40", "2199023255552");
  refuse_forward([](auto& x) { x.rows = x.in = int64_t{1} << 32; }, "size of x in bytes must fit", "4294967296");
  refuse_forward([](auto& x) { x.x_stride = 5; }, "stride of x must be at least its columns = 6", "5");
  refuse_forward([](auto& x) { x.weight_stride = 0; }, "stride of weight must be", "0");
  refuse_forward([](auto& x) { x.y_stride = -5; }, "stride of y must be", "-5");
  refuse_forward([](auto& x) { x.y_stride = int64_t{1} << 61; }, "size of y in bytes must fit", "4 rows");
}

TEST_F(LinearErrors, Pointers) {
  refuse_forward([](auto& x) { x.x = nullptr; }, "x must not be NULL", "NULL");
  refuse_forward([](auto& x) { x.weight = nullptr; }, "weight must not be NULL", "NULL");
  refuse_forward([](auto& x) { x.y = nullptr; }, "y must not be NULL", "NULL");
  refuse_forward([](auto& x) { x.x = misaligned(x.x); }, "x must be aligned to its element of 4", "0x");
  refuse_forward([](auto& x) { x.bias = misaligned(x.bias); }, "bias must be aligned to its element of 4", "0x");
}

TEST_F(LinearErrors, Backward) {
  refuse_backward([](auto& x, auto&) { x.activation = RF_LINEAR_GELU_TANH; },
                  "activation must be RF_LINEAR_NONE for the backward", "2");
  refuse_backward([](auto&, auto& g) { g.y = nullptr; }, "grads.y must not be NULL", "NULL");
  refuse_backward([](auto&, auto& g) { g.y_stride = 4; }, "stride of grads.y must be at least its columns = 5", "4");
  refuse_backward([](auto&, auto& g) { g.x_stride = 1; }, "stride of grads.x", "1");
  refuse_backward([](auto&, auto& g) { g.weight_stride = 1; }, "stride of grads.weight", "1");
  refuse_backward([](auto&, auto& g) { g.bias = const_cast<void*>(misaligned(g.bias)); }, "grads.bias must be aligned",
                  "0x");
  refuse_backward([](auto& x, auto&) { x.weight = nullptr; }, "weight must not be NULL", "NULL");
  refuse_backward([](auto& x, auto&) { x.x = nullptr; }, "x must not be NULL", "NULL");
}

TEST_F(LinearErrors, Packed) {
  const rf_linear_args args = linear_.args();
  expect_refused(rf_linear_pack(RF_F32, 6, 5, args.weight, 6, nullptr), "packed must not be NULL", "NULL");
  rf_linear_packed* made = nullptr;
  expect_refused(rf_linear_pack(RF_F32, 6, 5, args.weight, 3, &made), "stride of weight must be", "3");
  EXPECT_EQ(rf_linear_pack(RF_F64, 6, 5, args.weight, 6, &made), RF_NOT_IMPLEMENTED);
  EXPECT_EQ(made, nullptr);
  ASSERT_EQ(rf_linear_pack(RF_F32, 6, 5, args.weight, 6, &made), RF_OK) << rf_last_error();
  const Packed owner(made);
  refuse_forward([&](auto& x) { x.packed = made; }, "weight must be NULL where packed is set", "both");
  const auto use = [&](auto& x) { x.packed = made, x.weight = nullptr; };
  refuse_forward([&](auto& x) { use(x), x.in = 5; }, "packed must be of the dtype, in and out", "1, 6, 5");
  refuse_backward([&](auto& x, auto&) { use(x); }, "packed must be NULL for the backward", "one");
  ASSERT_EQ(rf_set_target("ref"), RF_OK);
  refuse_forward(use, "packed must be used with the instruction set that it was packed for",
                 "a weight packed for another");
  ASSERT_EQ(rf_set_target(""), RF_OK);
}

TEST_F(LinearErrors, Backend) {
  EXPECT_STREQ(rf_linear_backend(RF_F32, -1, 8, 8), "");
  EXPECT_NE(std::string(rf_last_error()).find("[linear] rows must be in"), std::string::npos) << rf_last_error();
}

}  // namespace
}  // namespace rf::tests
