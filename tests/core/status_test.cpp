// What functions answer when there is no memory: a status and its text, wherever in a call memory ends.
#include <gtest/gtest.h>
#include <omp.h>

#include <cstdlib>
#include <functional>
#include <new>
#include <string>

#include "core/attention_case.h"
#include "core/rope_case.h"
#include "rf/dropout.h"
#include "rf/linear.h"
#include "rf/rows.h"

namespace {

// Allocations of this thread that still succeed; -1: all.
thread_local int64_t allocations_left = -1;

}  // namespace

// Those of the whole program, the library's too. Not inlined, or g++ takes free for the wrong partner of new.
[[gnu::noinline]] void* operator new(size_t size) {
  if (allocations_left == 0) throw std::bad_alloc();
  if (allocations_left > 0) --allocations_left;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
// As the library's does, but under a sanitizer, whose own memory free must not be given.
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  try {
    return operator new(size);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace rf::tests {
namespace {

// With every number of allocations that succeed, until the call has what it needs and answers `status`.
void expect_out_of_memory(const std::string& where, rf_status status, const std::function<rf_status()>& call) {
  SCOPED_TRACE(where);
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  for (int64_t succeed = 0;; ++succeed) {
    rf_release_memory();
    allocations_left = succeed;
    const rf_status got = call();
    allocations_left = -1;
    if (got == status) break;
    ASSERT_EQ(got, RF_OUT_OF_MEMORY) << succeed;
    ASSERT_EQ(rf_last_error(), "[" + where + "] out of memory");
  }
  omp_set_num_threads(threads);
}

TEST(Status, OutOfMemoryInACall) {
  AttentionShape shape;
  shape.queries = 60, shape.keys = 50, shape.head_dim = shape.value_dim = 6;
  shape.key_table = shape.query_table = shape.value_table = shape.bias = shape.content_bias = true;
  AttentionCase attention(shape, 1);
  expect_out_of_memory("attention", RF_OK, [&] { return rf_attention_forward(&attention.tiles()); });
  expect_out_of_memory("attention", RF_OK,
                       [&] { return rf_attention_backward(&attention.tiles(), &attention.tile_grads()); });

  const Frequencies frequencies(8);
  rf_rope* made = nullptr;
  expect_out_of_memory("rope", RF_OK, [&] {
    return rf_rope_create(frequencies.hi.data(), frequencies.lo.data(), frequencies.count(), 1, 0, &made);
  });
  const Rope rope(made);
  Elements x(RF_F32, 300 * 8), y = x;
  const rf_rope_args args = contiguous_args(x, y, 1, 300, 1, 8, RF_ROPE_PAIRS);
  expect_out_of_memory("rope", RF_OK, [&] { return rf_rope_apply(rope.get(), &args); });

  std::vector<float> rows(40, 1), bias(10);
  rf_gelu_args gelu{};
  gelu.struct_size = sizeof gelu, gelu.dtype = RF_F32, gelu.form = RF_GELU_ERF, gelu.rows = 4, gelu.columns = 10;
  gelu.x = rows.data(), gelu.x_stride = 10;
  rf_gelu_grads grads{};
  grads.struct_size = sizeof grads, grads.y = rows.data(), grads.y_stride = 10, grads.bias = bias.data();
  expect_out_of_memory("gelu", RF_OK, [&] { return rf_gelu_backward(&gelu, &grads); });
}

// The text of an error needs memory too.
TEST(Status, OutOfMemoryInAnError) {
  float x = 1;
  expect_out_of_memory("dropout", RF_INVALID_ARGUMENT, [&] { return rf_dropout(RF_F32, &x, &x, 1, 2.0, 0, 0); });
  EXPECT_STREQ(rf_last_error(), "[dropout] p must be in [0, 1 - 2^-17), got 2");
  expect_out_of_memory("norm", RF_INVALID_ARGUMENT, [] { return rf_norm_forward(nullptr); });
  expect_out_of_memory("target", RF_INVALID_ARGUMENT, [] { return rf_set_target("a target that there is not"); });
  expect_out_of_memory("linear", RF_INVALID_ARGUMENT, [] { return rf_linear_forward(nullptr); });
}

// A text that is longer than what is kept of one is cut in front of a whole character, whatever the place of the cut.
TEST(Status, NoCharacterIsCut) {
  for (const std::string character : {"\xC3\xA9", "\xE4\xB8\xAD", "\xF0\x9F\x99\x82"}) {
    for (size_t shift = 0; shift < character.size(); ++shift) {
      std::string name(shift, 'x');
      while (name.size() < 3000) name += character;
      EXPECT_EQ(rf_set_target(name.c_str()), RF_INVALID_ARGUMENT);
      const std::string text = rf_last_error();
      EXPECT_LT(text.size(), name.size());
      EXPECT_TRUE(text.ends_with(character)) << shift;
    }
  }
}

}  // namespace
}  // namespace rf::tests
