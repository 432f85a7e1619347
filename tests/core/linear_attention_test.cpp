// Linear attention in chunks, of every instruction set, against the float64 loops over all pairs: directions,
// denominators, maps, lengths on both sides of a chunk, types, strides, exponents of keys, packed sequences; then
// threads, neighbours and the error of a sum over 2^20 positions. Masks and states are compared in tests/ops and
// tests/nn.
#include <omp.h>

#include <algorithm>
#include <cmath>

#include "core/linear_case.h"

namespace rf::tests {
namespace {

using LinearAttention = TargetTest;

// Elementwise, relative to the largest of the array or, as what adds up to less may cancel, to the 1 or so that values
// and features are.
void expect_close(const Elements& got, const Elements& want, double eps, const std::string& what) {
  double largest = 1;
  for (int64_t i = 0; i < want.count(); ++i) {
    if (!std::isnan(want.at(i))) largest = std::max(largest, std::abs(want.at(i)));
  }
  for (int64_t i = 0; i < want.count(); ++i) {
    ASSERT_NEAR(got.at(i), want.at(i), kLinearAttentionEps * eps * largest) << what << " element " << i;
  }
}

std::string describe(rf_dtype dtype, const LinearShape& s, const LinearOptions& o) {
  std::ostringstream text;
  text << "dtype " << dtype << " shape " << s.batch << ' ' << s.queries << ' ' << s.keys << ' ' << s.heads << '/'
       << s.key_heads << ' ' << s.features << ' ' << s.value_dim << " direction " << o.direction << " denominator "
       << o.denominator << " map " << o.map << " layout " << o.layout << " pairs " << o.pairs << " masked " << o.masked
       << " rise " << o.rise << " sequences " << o.sequences;
  return text.str();
}

void expect_equal_to_loops(rf_dtype dtype, const LinearShape& shape, const LinearOptions& options) {
  const std::string what = describe(dtype, shape, options), target = rf_target();
  LinearCase chunks(dtype, shape, options), loops(dtype, shape, options);
  for (Elements* x : {&chunks.out.elements, &chunks.dq, &chunks.dk, &chunks.dv}) {
    for (int64_t i = 0; i < x->count(); ++i) x->set(i, 7);  // is overwritten
  }
  chunks.forward();
  chunks.backward();
  ASSERT_EQ(rf_set_target("ref"), RF_OK);
  loops.forward();
  loops.backward();
  ASSERT_EQ(rf_set_target(target.c_str()), RF_OK) << rf_last_error();
  for (int64_t i = 0; i < chunks.out.elements.count(); ++i) {
    if (i % chunks.out.stride_h < chunks.out.width) continue;
    ASSERT_EQ(chunks.out.elements.at(i), 7) << what << " a gap is written";
    loops.out.elements.set(i, 7);
  }
  const double eps = eps_of(dtype);
  expect_close(chunks.out.elements, loops.out.elements, eps, what + " out");
  for (size_t i = 0; i < loops.denominators.size(); ++i) {
    const double want = loops.denominators[i];
    ASSERT_NEAR(chunks.denominators[i], want, kLinearAttentionEps * kEpsF32 * std::abs(want)) << what << " " << i;
  }
  expect_close(chunks.dq, loops.dq, eps, what + " dq");
  expect_close(chunks.dk, loops.dk, eps, what + " dk");
  expect_close(chunks.dv, loops.dv, eps, what + " dv");
}

TEST_P(LinearAttention, EqualsLoopsWithEveryOption) {
  const LinearShape shape = {.queries = 70, .keys = 70};
  for (const auto direction : {RF_LINEAR_BIDIRECTIONAL, RF_LINEAR_CAUSAL}) {
    for (const auto denominator : {RF_DENOMINATOR_PLAIN, RF_DENOMINATOR_ROTATED}) {
      for (const auto map : {RF_FEATURES_GIVEN, RF_FEATURES_ELU_PLUS_ONE, RF_FEATURES_RELU}) {
        for (const int64_t pairs : {0, 2}) {
          for (const bool masked : {false, true}) {
            LinearOptions options = {.direction = direction, .denominator = denominator, .map = map, .pairs = pairs};
            options.layout = masked ? RF_ROPE_PAIRS : RF_ROPE_HALVES;
            options.shared_rotation = options.masked = masked;
            options.eps = masked || map == RF_FEATURES_RELU ? 0.25 : 0;
            expect_equal_to_loops(RF_F32, shape, options);
          }
        }
      }
    }
  }
}

constexpr std::pair<int64_t, int64_t> kLengths[] = {{0, 0},   {0, 3},     {3, 0},    {1, 1},    {1, 200},
                                                    {200, 1}, {15, 17},   {16, 16},  {63, 63},  {64, 64},
                                                    {65, 65}, {129, 129}, {70, 140}, {140, 70}, {131, 128}};

TEST_P(LinearAttention, EqualsLoopsAtEveryLength) {
  for (const auto direction : {RF_LINEAR_BIDIRECTIONAL, RF_LINEAR_CAUSAL}) {
    for (const auto& [queries, keys] : kLengths) {
      const LinearShape shape = {.batch = 1, .queries = queries, .keys = keys, .heads = 2, .key_heads = 1};
      expect_equal_to_loops(RF_F32, shape, {.direction = direction});
    }
  }
  for (const auto& [features, value_dim] :
       {std::pair{2, 1}, {16, 24}, {17, 16}, {64, 64}, {70, 80}, {128, 33}, {266, 64}}) {
    LinearShape shape = {.batch = 1, .queries = 67, .keys = 67, .heads = 1, .key_heads = 1};
    shape.features = features, shape.value_dim = value_dim;
    expect_equal_to_loops(RF_F32, shape, {.pairs = features / 2});
  }
}

TEST_P(LinearAttention, EqualsLoopsInEveryTypeAndWithGaps) {
  const LinearShape shape = {.queries = 70, .keys = 70, .features = 24, .value_dim = 20};
  for (const rf_dtype dtype : {RF_F32, RF_BF16, RF_F16}) {
    for (const auto direction : {RF_LINEAR_BIDIRECTIONAL, RF_LINEAR_CAUSAL}) {
      for (const int64_t gap : {0, 3}) expect_equal_to_loops(dtype, shape, {.direction = direction, .gap = gap});
    }
  }
  expect_equal_to_loops(RF_F32, {.batch = 0}, {});
}

TEST_P(LinearAttention, EqualsLoopsWithExponentsOfKeys) {
  for (const auto& [queries, keys] : {std::pair{1, 1}, {64, 64}, {150, 150}, {70, 200}, {200, 70}}) {
    for (const auto denominator : {RF_DENOMINATOR_PLAIN, RF_DENOMINATOR_ROTATED}) {
      for (const double rise : {0.5, 40.0, 1e4}) {
        const LinearShape shape = {.batch = 1, .queries = queries, .keys = keys};
        const LinearOptions options = {.denominator = denominator, .map = RF_FEATURES_GIVEN, .eps = 1e-3, .rise = rise};
        expect_equal_to_loops(RF_F32, shape, options);
      }
    }
  }
}

TEST_P(LinearAttention, EqualsLoopsOfPackedSequences) {
  for (const auto direction : {RF_LINEAR_BIDIRECTIONAL, RF_LINEAR_CAUSAL}) {
    for (const auto& [queries, keys] : {std::pair{300, 300}, {90, 200}, {200, 90}, {0, 0}}) {
      const LinearShape shape = {.batch = 1, .queries = queries, .keys = keys};
      LinearOptions options = {.direction = direction, .sequences = 5};
      expect_equal_to_loops(RF_F32, shape, options);
      options.map = RF_FEATURES_GIVEN, options.rise = direction == RF_LINEAR_CAUSAL ? 5 : 0;
      if (queries == 0) expect_equal_to_loops(RF_F32, shape, options);
    }
  }
}

// A packed sequence has the bits that it has alone.
TEST_P(LinearAttention, PackedNeighboursDoNotChangeBits) {
  LinearCase packed(RF_F32, {.batch = 1, .queries = 300, .keys = 300}, {.sequences = 3});
  LinearCase alone(RF_F32, {.batch = 1, .queries = 300, .keys = 300}, {});
  packed.forward(), packed.backward();
  const int64_t first = packed.ends_q[2], count = packed.ends_q[3] - first;
  ASSERT_GT(count, 64);
  rf_linear_attention_args& x = alone.args;
  x.queries = x.keys = count;
  const auto move = [&](auto& pointer, int64_t floats) { pointer = static_cast<const float*>(pointer) + floats; };
  move(x.q, first * x.q_stride_t), move(x.k, first * x.k_stride_t), move(x.v, first * x.v_stride_t);
  for (rf_attention_rotation* r : {&x.query, &x.key}) move(r->cos, first * r->pairs), move(r->sin, first * r->pairs);
  move(alone.grads.out, first * alone.grads.out_stride_t);
  x.key_mask += first;
  alone.forward(), alone.backward();
  const auto expect_part = [&](const Elements& whole, const Elements& part, int64_t width) {
    for (int64_t i = 0; i < count * width; ++i) ASSERT_EQ(part.at(i), whole.at(first * width + i)) << i;
  };
  expect_part(packed.out.elements, alone.out.elements, x.out_stride_t);
  expect_part(packed.dq, alone.dq, x.heads * x.features);
  expect_part(packed.dk, alone.dk, x.key_heads * x.features);
  expect_part(packed.dv, alone.dv, x.key_heads * x.value_dim);
}

using Bits = std::vector<std::vector<char>>;

Bits bits_of(LinearCase& problem, int threads) {
  omp_set_num_threads(threads);
  problem.forward(), problem.backward();
  const auto* below = reinterpret_cast<const char*>(problem.denominators.data());
  const std::vector<char> denominators(below, below + problem.denominators.size() * sizeof(float));
  return {problem.out.elements.bytes, problem.dq.bytes, problem.dk.bytes, problem.dv.bytes, denominators};
}

// One head has so many blocks that threads share it.
TEST_P(LinearAttention, ThreadsDoNotChangeBits) {
  const LinearShape many = {.batch = 3, .queries = 150, .keys = 150},
                    one = {.batch = 1, .queries = 20000, .keys = 21000, .heads = 2, .key_heads = 1};
  const LinearOptions both = {.direction = RF_LINEAR_BIDIRECTIONAL}, rising = {.map = RF_FEATURES_GIVEN, .rise = 3};
  for (const auto& [shape, options] : {std::pair{many, LinearOptions{}}, {one, {}}, {one, both}, {one, rising}}) {
    LinearCase problem(RF_F32, shape, options), other(RF_F32, shape, options);
    EXPECT_EQ(bits_of(problem, 1), bits_of(other, 4)) << describe(RF_F32, shape, options);
  }
}

TEST_P(LinearAttention, NeighboursDoNotChangeBits) {
  const LinearShape shape = {.batch = 3, .queries = 150, .keys = 150};
  LinearCase problem(RF_F32, shape, {}), alone(RF_F32, shape, {});
  const Bits whole = bits_of(problem, 2);
  alone.args.batch = alone.args.query.batch = alone.args.key.batch = 1;
  const Bits first = bits_of(alone, 2);
  for (size_t i = 0; i < whole.size(); ++i) {
    const auto third = static_cast<std::ptrdiff_t>(whole[i].size() / 3);
    EXPECT_TRUE(std::equal(whole[i].begin(), whole[i].begin() + third, first[i].begin())) << i;
  }
}

// Keys that are all alike, the worst case of long sums, as every addition is rounded to the same side.
void make_keys_alike(LinearCase& problem) {
  for (LinearRows* rows : {&problem.k, &problem.v}) {
    for (int64_t i = 0; i < rows->elements.count(); ++i) {
      rows->elements.set(i, 0.3 + 0.1 * static_cast<double>(i % rows->width));
    }
  }
}

double feature(const LinearRows& rows, int64_t i) {
  const double value = rows.elements.at(i);
  return value > 0 ? value + 1 : std::exp(value);
}

// Over 2^20 positions, against running sums in float64.
TEST_P(LinearAttention, LongSumsKeepTheirPrecision) {
  constexpr int64_t kTokens = 1 << 20;
  LinearShape shape = {.batch = 1, .queries = kTokens, .keys = kTokens, .heads = 1, .key_heads = 1};
  shape.features = shape.value_dim = 1;
  LinearCase problem(RF_F32, shape, {.pairs = 0, .masked = false});
  make_keys_alike(problem);
  problem.forward();
  double sum = 0, norm = 0, worst = 0;  // relative error
  for (int64_t t = 0; t < kTokens; ++t) {
    sum += feature(problem.k, t) * problem.v.elements.at(t), norm += feature(problem.k, t);
    const double got = problem.out.elements.at(t), below = problem.denominators[t];
    const double out_error = got / (sum / norm) - 1, below_error = below / (feature(problem.q, t) * norm) - 1;
    worst = std::max({worst, std::abs(out_error), std::abs(below_error)});
    ASSERT_TRUE(std::isfinite(got) && std::isfinite(below)) << t;
  }
  EXPECT_LE(worst, kLinearWorstEps * kEpsF32);
}

// Token by token, where every call adds to the state.
TEST_P(LinearAttention, TheStateOfManyCallsKeepsItsPrecision) {
  constexpr int64_t kFeatures = 2, kValues = 2, kCalls = 20000;
  LinearShape shape = {.batch = 1, .queries = 1, .keys = 1, .heads = 1, .key_heads = 1};
  shape.features = kFeatures, shape.value_dim = kValues;
  LinearCase problem(RF_F32, shape, {.pairs = 0, .masked = false});
  make_keys_alike(problem);
  std::vector<double> state(static_cast<size_t>(kFeatures * (kValues + 1)));
  problem.args.state = state.data();
  for (int64_t call = 0; call < kCalls; ++call) problem.forward();
  for (int64_t f = 0; f < kFeatures; ++f) {
    for (int64_t e = 0; e <= kValues; ++e) {
      const double want = kCalls * feature(problem.k, f) * (e < kValues ? problem.v.elements.at(e) : 1);
      EXPECT_NEAR(state[f * (kValues + 1) + e], want, kLinearWorstEps * kEpsF32 * want);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, LinearAttention, testing::ValuesIn(instruction_sets()), name_of_target);

}  // namespace
}  // namespace rf::tests
