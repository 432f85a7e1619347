// First and end of each token's sequence, and bad positions (rf/nn/positions.h).
#include "rf/nn/positions.h"

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "rf/nn/encoding.h"
#include "temporary_files.h"

namespace rf::nn {
namespace {

using tests::error_of;
using Rows = std::vector<std::vector<int64_t>>;

at::Tensor tensor_of(const Rows& rows, at::ScalarType dtype = at::kLong) {
  std::vector<int64_t> flat;
  for (const auto& row : rows) flat.insert(flat.end(), row.begin(), row.end());
  return at::tensor(flat, at::kLong)
      .view({static_cast<int64_t>(rows.size()), static_cast<int64_t>(rows[0].size())})
      .to(dtype);
}

void expect_rows(const at::Tensor& x, const Rows& rows) { EXPECT_TRUE(x.equal(tensor_of(rows))) << x; }

std::string positions_error(const at::Tensor& query, const at::Tensor& key = {}, const at::Tensor& sequences = {}) {
  return error_of([&] { make_positions(query, key, sequences); });
}

TEST(Positions, ARowIsOneSequence) {
  const Positions positions = make_positions(tensor_of({{3, 4, 5}, {0, 7, 2}}, at::kInt));
  expect_rows(positions.query.ids, {{3, 4, 5}, {0, 7, 2}});
  expect_rows(positions.query.first, {{3, 3, 3}, {0, 0, 0}});
  expect_rows(positions.key.end, {{6, 6, 6}, {8, 8, 8}});
  expect_rows(make_positions(at::tensor({2, 9}, at::kLong)).key.end, {{10, 10}});
}

TEST(Positions, AContinuationSeesItsCache) {
  const Positions positions = make_positions(tensor_of({{4}, {9}}), tensor_of({{0, 1, 2, 3, 4}}));
  expect_rows(positions.query.first, {{0}, {0}});
  expect_rows(positions.query.end, {{5}, {10}});
  expect_rows(positions.key.end, {{5, 5, 5, 5, 5}, {10, 10, 10, 10, 10}});
}

TEST(Positions, SequencesOfARowDoNotSeeEachOther) {
  const at::Tensor ids = tensor_of({{0, 1, 2, 5, 6, 9}, {1, 2, 3, 4, 5, 6}});
  const at::Tensor sequences = tensor_of({{0, 0, 0, 7, 7, -1}, {7, 7, -1, 0, 0, 0}}, at::kInt);
  const Positions positions = make_positions(ids, {}, sequences);
  expect_rows(positions.key.first, {{0, 0, 0, 5, 5, 9}, {1, 1, 3, 4, 4, 4}});
  expect_rows(positions.key.end, {{3, 3, 3, 7, 7, 10}, {3, 3, 4, 7, 7, 7}});
  EXPECT_TRUE(positions.query.end.equal(positions.key.end));
}

TEST(Positions, SequencesOfOneRowHoldForAll) {
  const Positions positions =
      make_positions(tensor_of({{3}, {8}}), tensor_of({{0, 1, 2, 3}, {5, 6, 7, 8}}), tensor_of({{0, 0, 1, 1}}));
  expect_rows(positions.key.first, {{0, 0, 2, 2}, {5, 5, 7, 7}});
  expect_rows(positions.query.first, {{2}, {7}});
  expect_rows(make_positions(at::tensor({0, 1, 2}, at::kLong), {}, tensor_of({{0, 0, 0}, {0, 4, 4}})).key.end,
              {{3, 3, 3}, {1, 3, 3}});
}

TEST(Positions, LargeNumbersOfSequencesAndNothing) {
  const Positions positions = make_positions(tensor_of({{0, 1, 0}}), {}, tensor_of({{2147483647, 2147483647, 5}}));
  expect_rows(positions.key.end, {{2, 2, 1}});
  EXPECT_EQ(make_positions(at::zeros({2, 0}, at::kLong)).query.first.sizes(), (std::vector<int64_t>{2, 0}));
  EXPECT_EQ(make_positions(at::zeros({0, 3}, at::kLong)).key.end.sizes(), (std::vector<int64_t>{0, 3}));
}

TEST(Positions, OfSeveralAxesTheHighestCounts) {
  const at::Tensor axes_BTA = at::tensor({0, 0, 0, 7, 1, 2, 3, 9, 4}, at::kLong).view({1, 3, 3});
  const Positions positions = make_positions(axes_BTA);
  expect_rows(positions.query.ids, {{0, 7, 9}});
  expect_rows(positions.key.end, {{10, 10, 10}});
  EXPECT_TRUE(positions.key.axes.equal(axes_BTA));
  EXPECT_FALSE(make_positions(positions.query.ids).query.axes.defined());
}

TEST(Positions, BadInputIsRefused) {
  const at::Tensor ids = tensor_of({{0, 1, 2}});
  const std::string kinds = " positions must be integers [tokens], [batch, tokens] or [batch, tokens, axes], got ";
  EXPECT_EQ(positions_error(ids.to(at::kFloat)), "[positions] query" + kinds + "Float of 2 dimensions");
  EXPECT_EQ(positions_error(ids, at::zeros({1, 1, 1, 1}, at::kLong)),
            "[positions] key" + kinds + "Long of 4 dimensions");
  EXPECT_EQ(positions_error(tensor_of({{1}, {2}}), tensor_of({{1}, {2}, {3}})),
            "[positions] queries and keys must have one batch size, got 2 and 3");
  EXPECT_EQ(positions_error(ids, tensor_of({{0, 1}}), tensor_of({{0, 0}})),
            "[positions] queries must be the last keys of their rows, got 3 queries and 2 keys");
  EXPECT_EQ(positions_error(ids, {}, tensor_of({{0, -2, 0}})),
            "[positions] sequences must be -1 (padding) or in 0..2147483647, got -2");
  EXPECT_EQ(positions_error(ids, {}, tensor_of({{0, 0}})),
            "[positions] sequences must be integers [1 or 1, 3], got Long [1, 2]");
  EXPECT_EQ(positions_error(ids, {}, tensor_of({{0, 0, 0}}, at::kFloat)),
            "[positions] sequences must be integers [1 or 1, 3], got Float [1, 3]");
}

// What reads positions through a pointer, which is no address here where they are on another device.
TEST(Positions, OfAnotherDeviceAreRefused) {
  const Positions meta = make_positions(at::zeros({1, 3}, at::dtype(at::kLong).device(at::kMeta)));
  for (const auto& [name, options] : std::vector<std::pair<std::string, std::string>>{
           {"sinusoidal", "{}"}, {"rope", "{}"}, {"axial", R"({"grid_width": 2})"}, {"log-n", "{}"}, {"fire", "{}"}}) {
    const auto encoding = make_encoding({name, options}, {.heads = 2, .head_dim = 8, .causal = true});
    const std::string message = error_of([&] {
      encoding->input(meta.query, at::kFloat);
      encoding->terms(0, encoding->shared(meta, at::kFloat), {});
    });
    EXPECT_EQ(message, "[encoding] positions must be on the CPU, got meta") << name;
  }
}

}  // namespace
}  // namespace rf::nn
