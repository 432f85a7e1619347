// A call of attention over terms on the same numbers: in float64 for the loops, in another type for the tiles. Which
// terms there are, the shape and the positions are drawn from a seed or set by hand.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/rope_case.h"
#include "rf/attention.h"

namespace rf::tests {

struct AttentionShape {
  rf_dtype dtype = RF_F32;
  int64_t batch = 1, queries = 1, keys = 1, heads = 1, key_heads = 1, head_dim = 8, value_dim = 8;
  rf_rope_layout layout = RF_ROPE_PAIRS;
  bool query = false, key = false, value = false, shared_rotation = false;
  bool rotation_of_heads = false;  // rows for each head
  bool content_bias = false, position_bias = false, key_table = false, query_table = false, value_table = false,
       bias = false;
  bool shared_tables = false;
  int64_t lo = -1, hi = 1;      // of every table
  bool position_query = false;  // and position_key
  bool reset_row = false, reset_col = false;
  bool key_score = false, pair_bias = false;
  bool batch_shares_scores = false, heads_share_scores = false;  // numbers of tokens
  enum class Positions { kSteps, kGaps, kShuffled } positions = Positions::kSteps;
  int64_t first_query = 0;  // position of query 0, where positions step; that of key 0 is 0
  enum class Mask { kNone, kPadding, kFull } mask = Mask::kNone;
  int64_t window_left = -1, window_right = -1;  // -1: no limit
  std::vector<int64_t> prefix = {};             // of each entry, or none
  double dropout = 0;
  double score_cap = 0;                                 // > 0: forward alone
  std::vector<int64_t> query_ends = {}, key_ends = {};  // cu_seqlens of packed sequences; positions restart in each

  std::string text() const;
};

AttentionShape random_shape(uint64_t seed);
// A case of one row, which is cut into sequences; some may have no queries or no keys.
AttentionShape random_packed_shape(uint64_t seed);

// Numbers in a type, and in float64.
struct TwinArray {
  TwinArray(rf_dtype dtype, const std::vector<double>& values);
  void* data() { return narrow.bytes.data(); }
  std::vector<double> read() const;  // the numbers that `narrow` holds now

  Elements narrow;
  std::vector<double> wide;
};

class AttentionCase {
 public:
  AttentionCase(const AttentionShape& shape, uint64_t seed);

  // One array of results or gradients.
  struct Result {
    std::string name;
    std::vector<double> tiles, loops;
    double magnitude;    // of the terms that its sums are made of
    double float32_eps;  // that a sum of float32 may be off by

    // What is wrong with the tiles by the rule for their type; "" if nothing is.
    std::string fault(rf_dtype dtype) const;
  };
  // Forward and backward of both sides; status RF_OK is expected of each.
  std::vector<Result> run();
  // Results of the tiles alone: out, then the gradients, those of q, k and v first.
  std::vector<std::vector<double>> run_tiles();

  rf_attention_args& tiles() { return tiles_; }
  rf_attention_grads& tile_grads() { return tile_grads_; }

 private:
  TwinArray& draw(rf_dtype dtype, int64_t count, double deviation);
  void set_data();
  void set_positions();
  void set_mask();
  void set_terms();
  void set_gradients();
  rf_attention_rotation rotation(int64_t tokens, int64_t heads, rf_attention_rotation& loops);
  rf_attention_table table(int64_t width, rf_attention_table& loops);
  rf_attention_scores scores(int64_t rows, rf_attention_scores& loops);
  void add_gradient(const char* name, void* rf_attention_grads::*slot, rf_dtype dtype, int64_t count, double magnitude);

  struct Gradient {
    std::string name;
    std::unique_ptr<TwinArray> tiles;
    std::vector<double> loops;
    double magnitude;  // of the terms that its sums are made of
  };

  AttentionShape shape_;
  std::mt19937_64 generator_;
  std::vector<std::unique_ptr<TwinArray>> arrays_;
  std::vector<int64_t> query_positions_, key_positions_;
  std::vector<uint8_t> mask_;
  std::vector<float> log_sum_;
  std::vector<double> loops_out_;
  TwinArray* out_ = nullptr;
  std::vector<Gradient> gradients_;
  rf_attention_args tiles_{}, loops_{};
  rf_attention_grads tile_grads_{}, loop_grads_{};
  double largest_score_terms_ = 0;
};

// Forward and backward of a call in tiles are those of the loops, within the rule for their type.
void expect_equal(const AttentionShape& shape, uint64_t seed);

}  // namespace rf::tests
