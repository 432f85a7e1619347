// See the header.
#include "attention_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <sstream>

#include "attention/terms.h"
#include "tolerances.h"

namespace rf::tests {
namespace {

double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double value : values) most = std::max(most, std::abs(value));
  return most;
}

// Not a number counts as the largest.
double largest_difference(const std::vector<double>& x, const std::vector<double>& y) {
  double most = x.size() == y.size() ? 0 : std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    const double difference = std::abs(x[i] - y[i]);
    if (!(difference <= most)) most = difference;
  }
  return most;
}

}  // namespace

std::string AttentionShape::text() const {
  std::ostringstream out;
  out << "dtype " << dtype << " B" << batch << " T" << queries << " S" << keys << " H" << heads << '/' << key_heads
      << " D" << head_dim << '/' << value_dim << " layout " << layout << " R" << query << key << value << " u"
      << content_bias << " w" << position_bias << " K" << key_table << " Q" << query_table << " V" << value_table
      << " b" << bias << " shared " << shared_tables << " [" << lo << ',' << hi << "] a" << position_query << " row"
      << reset_row << " col" << reset_col << " kappa" << key_score << " P" << pair_bias << " shared "
      << batch_shares_scores << rotation_of_heads << heads_share_scores << " positions " << static_cast<int>(positions)
      << '+' << first_query << " mask " << static_cast<int>(mask) << " window " << window_left << ',' << window_right
      << " dropout " << dropout;
  for (const int64_t keys : prefix) out << " prefix " << keys;
  for (size_t i = 0; i < query_ends.size(); ++i)
    out << (i == 0 ? " ends " : " ") << query_ends[i] << '/' << key_ends[i];
  return out.str();
}

// From none of the keys to more than there are.
std::vector<int64_t> random_prefixes(int64_t entries, int64_t keys, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::vector<int64_t> prefixes(static_cast<size_t>(entries));
  for (int64_t& prefix : prefixes) prefix = static_cast<int64_t>(generator() % static_cast<uint64_t>(keys + 10));
  return prefixes;
}

AttentionShape random_shape(uint64_t seed) {
  std::mt19937_64 generator(seed);
  const auto pick = [&](std::initializer_list<int64_t> from) { return from.begin()[generator() % from.size()]; };
  const auto chance = [&](uint64_t one_in) { return generator() % one_in == 0; };
  AttentionShape s;
  s.dtype = static_cast<rf_dtype>(pick({RF_F32, RF_F32, RF_BF16, RF_F16}));
  s.batch = pick({1, 1, 2, 5});
  s.queries = pick({1, 2, 15, 47, 48, 49, 97, 130});
  s.keys = chance(2) ? s.queries : pick({1, 3, 63, 64, 65, 129, 200});
  s.key_heads = pick({1, 1, 2});
  s.heads = s.key_heads * pick({1, 2, 3});
  s.head_dim = pick({2, 6, 16, 24, 64, 70, 128});
  s.value = chance(5), s.value_table = chance(3);
  s.value_dim = s.value || s.value_table || chance(2) ? s.head_dim : pick({1, 16, 33, 80});
  s.layout = chance(2) ? RF_ROPE_PAIRS : RF_ROPE_HALVES;
  s.query = chance(2), s.key = chance(2), s.shared_rotation = chance(2);
  s.key_table = chance(3), s.query_table = chance(3), s.bias = chance(3), s.shared_tables = chance(3);
  s.content_bias = chance(3), s.position_bias = s.key_table && chance(2);
  s.lo = pick({-200, -70, -20, -3, 0}), s.hi = s.lo + pick({0, 1, 40, 90, 400});
  s.position_query = chance(4), s.reset_row = chance(4), s.reset_col = chance(4);
  s.positions = static_cast<AttentionShape::Positions>(pick({0, 0, 0, 1, 2}));
  s.first_query = pick({0, 0, 7, 150});
  s.mask = static_cast<AttentionShape::Mask>(pick({0, 0, 1, 2}));
  if (chance(3)) s.window_right = pick({0, 0, 5, 70});
  if (chance(4)) s.window_left = pick({0, 1, 30, 100});
  s.key_score = chance(3), s.batch_shares_scores = chance(2), s.heads_share_scores = chance(3);
  s.pair_bias = chance(3);
  s.rotation_of_heads = chance(2);
  if (s.window_left == -1 && s.window_right != -1) s.prefix = random_prefixes(s.batch, s.keys, seed);
  return s;
}

AttentionShape random_packed_shape(uint64_t seed) {
  AttentionShape s = random_shape(seed);
  std::mt19937_64 generator(seed);
  s.batch = 1;
  const uint64_t sequences = 1 + generator() % 6;
  const auto cut = [&](int64_t tokens) {
    std::vector<int64_t> ends = {0, tokens};
    while (ends.size() <= sequences)
      ends.push_back(static_cast<int64_t>(generator() % static_cast<uint64_t>(tokens + 1)));
    std::sort(ends.begin(), ends.end());
    return ends;
  };
  s.query_ends = cut(s.queries);
  s.key_ends = s.keys == s.queries && seed % 2 == 0 ? s.query_ends : cut(s.keys);
  if (!s.prefix.empty()) s.prefix = random_prefixes(static_cast<int64_t>(sequences), s.keys / 2, seed);
  return s;
}

TwinArray::TwinArray(rf_dtype dtype, const std::vector<double>& values)
    : narrow(dtype, static_cast<int64_t>(values.size())) {
  for (int64_t i = 0; i < narrow.count(); ++i) narrow.set(i, values[i]);
  wide = read();
}

std::vector<double> TwinArray::read() const {
  std::vector<double> values;
  for (int64_t i = 0; i < narrow.count(); ++i) values.push_back(narrow.at(i));
  return values;
}

AttentionCase::AttentionCase(const AttentionShape& shape, uint64_t seed) : shape_(shape), generator_(seed) {
  tiles_.struct_size = sizeof tiles_;
  tiles_.batch = shape.batch, tiles_.queries = shape.queries, tiles_.keys = shape.keys;
  tiles_.heads = shape.heads, tiles_.key_heads = shape.key_heads;
  tiles_.head_dim = shape.head_dim, tiles_.value_dim = shape.value_dim;
  tiles_.layout = shape.layout;
  tiles_.scale = 0.7 / std::sqrt(static_cast<double>(shape.head_dim));
  if (shape.window_left != -1) tiles_.window |= RF_WINDOW_LEFT, tiles_.window_left = shape.window_left;
  if (shape.window_right != -1) tiles_.window |= RF_WINDOW_RIGHT, tiles_.window_right = shape.window_right;
  if (!shape_.prefix.empty()) tiles_.prefix = shape_.prefix.data();
  tiles_.score_cap = shape.score_cap;
  if (!shape_.query_ends.empty()) {
    tiles_.cu_seqlens_q = shape_.query_ends.data(), tiles_.cu_seqlens_k = shape_.key_ends.data();
    tiles_.sequences = static_cast<int64_t>(shape_.query_ends.size()) - 1;
  }
  set_positions();
  set_mask();
  set_data();
  set_terms();
  set_gradients();
  tiles_.dropout = shape.dropout;
  tiles_.seed = 11, tiles_.stream = 3;
}

TwinArray& AttentionCase::draw(rf_dtype dtype, int64_t count, double deviation) {
  std::normal_distribution<double> normal(0, deviation);
  std::vector<double> values(static_cast<size_t>(count));
  for (double& value : values) value = normal(generator_);
  return *arrays_.emplace_back(std::make_unique<TwinArray>(dtype, values));
}

void AttentionCase::set_positions() {
  const auto fill = [&](std::vector<int64_t>& positions, int64_t tokens, int64_t first,
                        const std::vector<int64_t>& ends) {
    positions.resize(static_cast<size_t>(tokens * shape_.batch));
    for (int64_t b = 0; b < shape_.batch; ++b) {
      auto* own = positions.data() + b * tokens;
      std::iota(own, own + tokens, first);
      for (size_t i = 1; i < ends.size(); ++i) std::iota(own + ends[i - 1], own + ends[i], first);
      for (int64_t t = 0; t < tokens && shape_.positions == AttentionShape::Positions::kGaps; ++t) own[t] += own[t] / 5;
      if (shape_.positions == AttentionShape::Positions::kShuffled) std::shuffle(own, own + tokens, generator_);
    }
  };
  fill(query_positions_, shape_.queries, shape_.first_query, shape_.query_ends);
  fill(key_positions_, shape_.keys, 0, shape_.key_ends);
  tiles_.query_positions = query_positions_.data(), tiles_.query_position_stride_b = shape_.queries;
  tiles_.key_positions = key_positions_.data(), tiles_.key_position_stride_b = shape_.keys;
}

void AttentionCase::set_mask() {
  const int64_t keys = shape_.keys, queries = shape_.queries;
  if (shape_.mask == AttentionShape::Mask::kNone) return;
  const bool full = shape_.mask == AttentionShape::Mask::kFull;
  mask_.resize(static_cast<size_t>(shape_.batch * (full ? shape_.heads * queries : 1) * keys));
  for (uint8_t& open : mask_) open = generator_() % 4 != 0;
  tiles_.mask = mask_.data();
  tiles_.mask_stride_s = 1;
  tiles_.mask_stride_t = full ? keys : 0;
  tiles_.mask_stride_h = full ? queries * keys : 0;
  tiles_.mask_stride_b = (full ? shape_.heads * queries : 1) * keys;
}

// q, k and v are slices of wider rows, as of a fused projection.
void AttentionCase::set_data() {
  const AttentionShape& s = shape_;
  const int64_t gap = 3;
  const auto set = [&](int64_t& stride_b, int64_t& stride_t, int64_t& stride_h, int64_t tokens, int64_t heads,
                       int64_t width) -> TwinArray& {
    stride_h = width + gap, stride_t = heads * stride_h + gap, stride_b = tokens * stride_t + gap;
    return draw(s.dtype, s.batch * stride_b, 1);
  };
  rf_attention_args& x = tiles_;
  TwinArray& q = set(x.q_stride_b, x.q_stride_t, x.q_stride_h, s.queries, s.heads, s.head_dim);
  TwinArray& k = set(x.k_stride_b, x.k_stride_t, x.k_stride_h, s.keys, s.key_heads, s.head_dim);
  TwinArray& v = set(x.v_stride_b, x.v_stride_t, x.v_stride_h, s.keys, s.key_heads, s.value_dim);
  x.out_stride_h = s.value_dim, x.out_stride_t = s.heads * s.value_dim, x.out_stride_b = s.queries * x.out_stride_t;
  out_ = &draw(s.dtype, s.batch * x.out_stride_b, 1);
  loops_out_.resize(out_->wide.size());
  loops_ = x;
  x.dtype = s.dtype, loops_.dtype = RF_F64;
  x.q = q.data(), x.k = k.data(), x.v = v.data(), x.out = out_->data();
  loops_.q = q.wide.data(), loops_.k = k.wide.data(), loops_.v = v.wide.data(), loops_.out = loops_out_.data();
  log_sum_.resize(static_cast<size_t>(s.batch * s.heads * s.queries));
  tiles_.log_sum = log_sum_.data();
  largest_score_terms_ = tiles_.scale * static_cast<double>(s.head_dim) * largest(q.wide) * largest(k.wide) / 4;
}

rf_attention_rotation AttentionCase::rotation(int64_t tokens, int64_t heads, rf_attention_rotation& loops) {
  const int64_t batch = shape_.shared_rotation ? 1 : shape_.batch;
  const int64_t pairs = std::max<int64_t>(1, std::min(shape_.head_dim, shape_.value_dim) / 2 - 1);
  const int64_t count = batch * tokens * (shape_.rotation_of_heads ? heads : 1) * pairs;
  TwinArray &cos = draw(RF_F32, count, 0.7), &sin = draw(RF_F32, count, 0.7);
  loops = {cos.wide.data(), sin.wide.data(), batch, pairs};
  return {cos.data(), sin.data(), batch, pairs};
}

rf_attention_table AttentionCase::table(int64_t width, rf_attention_table& loops) {
  const int64_t heads = shape_.shared_tables ? 1 : shape_.heads;
  TwinArray& rows = draw(RF_F32, heads * (shape_.hi - shape_.lo + 1) * width, 0.5);
  loops = {rows.wide.data(), shape_.lo, shape_.hi, heads, width};
  return {rows.data(), shape_.lo, shape_.hi, heads, width};
}

// Slices of wider rows; rows: 0 for numbers by key.
rf_attention_scores AttentionCase::scores(int64_t rows, rf_attention_scores& loops) {
  const int64_t batch = shape_.batch_shares_scores ? 1 : shape_.batch, gap = 3;
  const int64_t heads = shape_.heads_share_scores ? 1 : shape_.heads;
  rf_attention_scores tiles{nullptr, batch, heads, 0, 0, 0};
  const int64_t row = shape_.keys + gap;
  tiles.stride_t = rows == 0 ? 0 : row, tiles.stride_h = std::max<int64_t>(rows, 1) * row + gap,
  tiles.stride_b = heads * tiles.stride_h;
  TwinArray& numbers = draw(RF_F32, batch * tiles.stride_b, 1);
  loops = tiles;
  tiles.numbers = numbers.data(), loops.numbers = numbers.wide.data();
  return tiles;
}

void AttentionCase::set_terms() {
  const AttentionShape& s = shape_;
  const auto vector = [&](bool wanted, const void*& tile, const void*& loop, int64_t count) {
    if (!wanted) return;
    TwinArray& numbers = draw(RF_F32, count, 0.5);
    tile = numbers.data(), loop = numbers.wide.data();
  };
  if (s.query) tiles_.query = rotation(s.queries, s.heads, loops_.query);
  if (s.key) tiles_.key = rotation(s.keys, s.key_heads, loops_.key);
  if (s.value) tiles_.value = rotation(s.keys, s.key_heads, loops_.value);
  if (s.rotation_of_heads) {
    tiles_.query_rotation_heads = loops_.query_rotation_heads = s.heads;
    tiles_.key_rotation_heads = loops_.key_rotation_heads = s.key_heads;
    tiles_.value_rotation_heads = loops_.value_rotation_heads = s.key_heads;
  }
  if (s.key_table) tiles_.key_table = table(s.head_dim, loops_.key_table);
  if (s.query_table) tiles_.query_table = table(s.head_dim, loops_.query_table);
  if (s.value_table) tiles_.value_table = table(s.value_dim, loops_.value_table);
  if (s.bias) tiles_.bias = table(1, loops_.bias);
  vector(s.content_bias, tiles_.content_bias, loops_.content_bias, s.heads * s.head_dim);
  vector(s.position_bias, tiles_.position_bias, loops_.position_bias, s.heads * s.head_dim);
  const int64_t positions = 500;
  vector(s.position_query, tiles_.position_query, loops_.position_query, s.heads * positions * s.head_dim);
  vector(s.position_query, tiles_.position_key, loops_.position_key, s.heads * positions * s.head_dim);
  tiles_.positions = loops_.positions = s.position_query ? positions : 0;
  vector(s.reset_row, tiles_.reset_row, loops_.reset_row, s.heads);
  vector(s.reset_col, tiles_.reset_col, loops_.reset_col, s.heads);
  if (s.key_score) tiles_.key_score = scores(0, loops_.key_score);
  if (s.pair_bias) tiles_.pair_bias = scores(s.queries, loops_.pair_bias);
}

void AttentionCase::add_gradient(const char* name, void* rf_attention_grads::*slot, rf_dtype dtype, int64_t count,
                                 double magnitude) {
  Gradient& gradient = gradients_.emplace_back();
  gradient.name = name;
  gradient.tiles = std::make_unique<TwinArray>(dtype, std::vector<double>(static_cast<size_t>(count), 77.0));
  gradient.loops.resize(static_cast<size_t>(count));
  gradient.magnitude = magnitude;
  tile_grads_.*slot = gradient.tiles->data();
  loop_grads_.*slot = gradient.loops.data();
}

void AttentionCase::set_gradients() {
  const AttentionShape& s = shape_;
  using Grads = rf_attention_grads;
  TwinArray& y = draw(s.dtype, s.batch * tiles_.out_stride_b, 1);
  tile_grads_.struct_size = sizeof tile_grads_;
  tile_grads_.out_stride_b = tiles_.out_stride_b, tile_grads_.out_stride_t = tiles_.out_stride_t;
  tile_grads_.out_stride_h = tiles_.out_stride_h;
  loop_grads_ = tile_grads_;
  tile_grads_.out = y.data(), loop_grads_.out = y.wide.data();
  gradients_.reserve(24);
  // A probability times y . v, summed over the queries of a key, a distance or a head.
  const double one = std::sqrt(static_cast<double>(s.value_dim)) * 4, all = static_cast<double>(s.batch * s.queries);
  add_gradient("q", &Grads::q, s.dtype, s.batch * s.queries * s.heads * s.head_dim, one);
  add_gradient("k", &Grads::k, s.dtype, s.batch * s.keys * s.key_heads * s.head_dim, one);
  add_gradient("v", &Grads::v, s.dtype, s.batch * s.keys * s.key_heads * s.value_dim, one);
  const auto term = [&](const char* name, const void* given, void* Grads::*slot, int64_t count) {
    if (given != nullptr) add_gradient(name, slot, RF_F32, count, one * std::sqrt(all));
  };
  // Those of cos and sin are products with elements of up to 4, so that the largest error in 16 bits is that of a few
  // roundings: tests/ops/test_attention_fused.py compares them over several draws.
  for (const core::RotationTerm& t : core::kRotationTerms) {
    if (s.dtype != RF_F32) continue;
    term(t.name, (tiles_.*t.member).cos, t.cos_gradient, t.size(tiles_));
    term(t.name, (tiles_.*t.member).sin, t.sin_gradient, t.size(tiles_));
  }
  for (const core::TableTerm& t : core::kTableTerms) {
    const rf_attention_table& table = tiles_.*t.member;
    term(t.name, table.rows, t.gradient, table.heads * t.rows(tiles_) * table.width);
  }
  for (const core::NumbersTerm& t : core::kNumbersTerms) {
    term(t.name, tiles_.*t.member, t.gradient, s.heads * t.rows(tiles_) * t.width(tiles_));
  }
  for (const core::ScoresTerm& t : core::kScoresTerms) {
    term(t.name, (tiles_.*t.member).numbers, t.gradient, t.size(tiles_));
  }
}

std::vector<std::vector<double>> AttentionCase::run_tiles() {
  EXPECT_EQ(rf_attention_forward(&tiles_), RF_OK) << rf_last_error();
  std::vector<std::vector<double>> values = {out_->read()};
  if (shape_.score_cap > 0) return values;
  EXPECT_EQ(rf_attention_backward(&tiles_, &tile_grads_), RF_OK) << rf_last_error();
  for (const Gradient& gradient : gradients_) values.push_back(gradient.tiles->read());
  return values;
}

std::vector<AttentionCase::Result> AttentionCase::run() {
  std::vector<std::vector<double>> tiles = run_tiles();
  EXPECT_EQ(rf_attention_forward(&loops_), RF_OK) << rf_last_error();
  if (shape_.score_cap == 0) {
    EXPECT_EQ(rf_attention_backward(&loops_, &loop_grads_), RF_OK) << rf_last_error();
  }
  const double eps = kAttentionEps * (1 + kScoreShare * largest_score_terms_);
  std::vector<Result> results;
  results.push_back({"out", std::move(tiles[0]), loops_out_, 4, eps});
  for (size_t i = 0; i + 1 < tiles.size(); ++i) {
    const Gradient& g = gradients_[i];
    results.push_back({g.name, std::move(tiles[i + 1]), g.loops, g.magnitude, eps});
  }
  return results;
}

std::string AttentionCase::Result::fault(rf_dtype dtype) const {
  const double truth = largest(loops), eps = eps_of(dtype);
  // With one key for each query, gradients are 0, and what is there instead is what was rounded.
  const bool subtracts = name == "q" || name == "k";
  const double cancels = truth <= kVanishes * magnitude ? 1 : subtracts ? kLowRounded : kLowCancels;
  const double bound =
      dtype == RF_F32 ? float32_eps * eps * std::max(magnitude, truth) : eps * (kLowEps * truth + cancels * magnitude);
  const double error = largest_difference(tiles, loops);
  if (error <= bound) return "";
  std::ostringstream out;
  out << name << " must be within " << bound << " of float64, whose largest number is " << truth << ", got " << error;
  return out.str();
}

void expect_equal(const AttentionShape& shape, uint64_t seed) {
  for (const auto& result : AttentionCase(shape, seed).run()) {
    ASSERT_EQ(result.fault(shape.dtype), "") << "seed " << seed << ": " << shape.text();
  }
}

}  // namespace rf::tests
