// Parameters of rotary encodings, and the cosines and sines of tokens, for both nn and the engine. The result for a
// token depends only on its position and on the first and last position of its sequence.
//
//   rope   pair i is rotated by p theta_i (rf/model/rope_spec.h has the frequencies)
//   axial  the first half of the pairs by floor(p / grid_width) theta_i, the second by (p mod grid_width) theta_i
//   mrope  pair i by the position on the axis of its section; for text, all axes are equal, as in rope
//   xpos   rope whose cosines and sines are multiplied by zeta_i^(e / scale_base) for queries, and divided by it for
//          keys; zeta_i = (2i/R + 0.4) / 1.4, and e counts from the middle of the token's sequence
//   axial-nd  the first axes_dims[0] / 2 pairs by the position on axis 0, the next axes_dims[1] / 2 by axis 1,
//          and so on, each axis with the frequencies of a rotary embedding of its size. Positions come with axes,
//          or are flat indices in a grid, the last axis fastest
//   log-n  no rotation
//
// rope and log-n may multiply the rows of queries by a factor that grows with the logarithm of the tokens (LogN), which
// scales the scores of a query.
//
// nn/posenc has a file for each, with its sources. Precision float32 is defined by the results of torch operators. So
// nn computes its frequencies, the file of rf/model/position_terms.h stores them, and nn passes cosine and sine
// functions.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "rf/io/dtype.h"
#include "rf/io/strict_object.h"
#include "rf/model/rope_spec.h"

namespace rf {

enum class RotaryForm { kRope, kAxial, kMrope, kXpos, kAxialNd, kLogN };
enum class RotaryLayout { kPairs, kHalves };  // pair i is (2i, 2i+1), or (i, i + R/2)
const char* name(RotaryLayout layout);

// The factor of the rows of queries, where L is the training length: none; max(1, ln(p + 1) / ln L) at position p; or
// ln n / ln L in a sequence whose positions span n.
enum class LogN { kNone, kPosition, kLength };

// "trainable": false, true or "log". kRaw: the frequencies are a parameter; kLog: their logarithms are, so an optimizer
// with steps of constant size, such as Adam, changes all frequencies by the same factor.
enum class TrainedFrequencies { kNone, kRaw, kLog };
// The parameter's name, float32 [R/2]: "freqs" or "log_freqs"; "" for kNone.
const char* parameter_name(TrainedFrequencies trained);

struct RotarySettings {
  RotaryForm form = RotaryForm::kRope;
  RopeSpec spec;  // axial: of one axis; axial-nd: of all axes
  RotaryLayout layout = RotaryLayout::kPairs;
  bool rotates_values = false;
  TrainedFrequencies trained = TrainedFrequencies::kNone;
  int64_t grid_width = 1;   // axial
  double scale_base = 512;  // xpos
  LogN log_n = LogN::kNone;
  std::vector<int64_t> axes_dims;   // axial-nd: elements of a head rotated by each axis, even
  std::vector<int64_t> grid_shape;  // axial-nd: sizes of the axes, the first -1 if unlimited; empty: not given
  bool operator==(const RotarySettings&) const = default;
};

// Reads the keys of an encoding. Throws Error for values out of range and invalid combinations.
RotarySettings read_rotary(RotaryForm form, io::StrictObject& options, int64_t head_dim,
                           int64_t max_position_embeddings);

enum class RotarySide { kQuery, kKey };  // differ for xpos and LogN

struct RotaryTokens {
  int64_t count = 0;
  const int64_t* ids = nullptr;  // [count], positions, |p| <= 2^53
  // [count], the lowest position of each token's sequence and one past its highest; used if depends_on_sequence().
  const int64_t *first = nullptr, *end = nullptr;
  const int64_t* axes = nullptr;  // mrope: [count, 3], axial-nd: [count, axes]; nullptr: use ids only
};

// The frequencies [R/2] for a sequence of that many tokens.
using GivenFrequencies = std::function<std::vector<float>(int64_t sequence_length)>;
// The cosine and the sine of each of `count` angles.
using Float32CosSin = std::function<void(const float* angles, int64_t count, float* cos, float* sin)>;

class RotaryRows {
 public:
  // frequencies: given if they are trained, or if precision is float32. cos_sin: for precision float32; absent:
  // correctly rounded.
  explicit RotaryRows(RotarySettings settings, GivenFrequencies given = {}, Float32CosSin cos_sin = {});

  const RotarySettings& settings() const { return settings_; }
  int64_t pairs() const;  // elements per row
  // Whether the rotation of a token may change as its sequence grows.
  bool changes_with_length() const;
  // Whether rows depend on more than a token's position, for sequences that end at or before `end`.
  bool depends_on_sequence(int64_t end) const;
  // Whether queries and keys at one position have different rows.
  bool sides_differ() const;
  // Throws Error if products of queries and keys of that dtype overflow in a sequence whose positions span that many
  // (xpos).
  void check_span(int64_t positions, io::DType dtype) const;
  // Throws Error if an index is outside the grid (axial-nd), or if no grid was given. fill() also supports positions
  // beyond a grid.
  void check_on_grid(int64_t position) const;

  // cos and sin [count, pairs()], T float or double.
  template <class T>
  void fill(RotarySide side, const RotaryTokens& tokens, T* cos, T* sin) const;
  // Whether the rows of a token are cos and sin of its position times fixed, exact frequencies.
  bool is_plain() const;
  // Frequencies for every length, or for lengths within the training length if they depend on it.
  const RopeFrequencies& initial() const { return initial_; }
  std::vector<double> initial_frequencies() const { return initial_.hi; }

 private:
  // Pairs begin .. begin + count - 1, rotated by one axis.
  struct Section {
    int64_t begin, count;
  };
  // Tokens in sequences of equal length, which therefore share frequencies.
  struct Run {
    int64_t begin, count;
    const RopeFrequencies* theta;
  };

  RopeFrequencies of_length(int64_t sequence_length) const;
  template <class T>
  void table(const RopeFrequencies& theta, Section section, const double* positions, int64_t count, T* cos,
             T* sin) const;
  template <class T>
  void fill_axis(const RotaryTokens& tokens, Section section, const double* positions, T* cos, T* sin) const;
  template <class T>
  void fill_rows(RotarySide side, const RotaryTokens& tokens, T* cos, T* sin) const;
  template <class T>
  void multiply_by_log_n(const RotaryTokens& tokens, T* cos, T* sin) const;
  template <class T>
  void fill_xpos(RotarySide side, const RotaryTokens& tokens, T* cos, T* sin) const;

  RotarySettings settings_;
  GivenFrequencies given_;
  Float32CosSin cos_sin_;
  RopeFrequencies initial_;
};

// Positions as float64, which holds them exactly. Throws Error beyond 2^53.
std::vector<double> exact_positions(const int64_t* positions, int64_t count);

// Vaswani's sinusoids (arXiv 2104.09864 Eq. 4), p[t] = sin and cos of position * 10000^(-2t/width), with the accuracy
// of rf/rope.h. An odd width ends with a sine.
enum class SinusoidLayout {
  kInterleaved,  // sin, cos, sin, cos, ..: Eq. 4
  kHalf,         // all sines, then all cosines (Marian, transformers' RoFormer); an odd width has one more sine
  kSineOnly,     // element j is sin(position * 10000^(-j/width))
};
SinusoidLayout read_sinusoid_layout(io::StrictObject& options);

// rows [count, width], T float or double; Position int64_t or double. Throws Error for a width above 2^19.
template <class T, class Position>
void sinusoid(const Position* positions, int64_t count, int64_t width, SinusoidLayout layout, T* rows);

// NEZHA (Wei et al. 2019, arXiv 1909.00204): rows [2 clip + 1, head_dim] for distances -clip..clip, query minus key.
// Row d is the interleaved sinusoid of clip - d, because the paper counts key minus query and its code begins at 0.
int64_t read_nezha_clip(io::StrictObject& options);
template <class T>
void nezha_rows(int64_t clip, int64_t head_dim, T* rows);

}  // namespace rf
