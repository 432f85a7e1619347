// What Python does not reach of attention: the loops with dropout of the probabilities.
#include "rf/nn/attention.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "temporary_files.h"

namespace rf::nn {
namespace {

TEST(Attention, TheLoopsKnowNoDropout) {
  DropoutKey key;
  const at::Tensor q = at::randn({1, 3, 1, 8}, at::kDouble);
  const AttentionContext context{make_positions(at::arange(3)), at::Tensor(), {}, Kernel::kRef};
  EXPECT_EQ(tests::error_of([&] { attention(q, q, q, {}, context, 0.5, &key); }),
            "[attention] dropout must be 0 with kernel ref, got 0.5");
}

}  // namespace
}  // namespace rf::nn
