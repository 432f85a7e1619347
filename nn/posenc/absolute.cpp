// Encodings of the input, of the model or of every layer, and none.
#include <ATen/TensorOperators.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "attention_state.h"
#include "layer_parameters.h"
#include "rf/io/error.h"
#include "rf/model/computed_encoding.h"
#include "rotary_rows.h"

namespace rf::nn::posenc {

namespace {

// No position encoding: attention treats its keys as a set (R-ATT-03).
class NoEncoding : public LengthFreeEncoding {
 public:
  NoEncoding(io::StrictObject&, const EncodingShape&) {}
  bool acts_in_layers() const override { return false; }
};

// A trained vector for each position, added to the input embeddings before their layer norm (BERT; Eq. 3, R-ABS-02). A
// position beyond the table is an error.
class Learned : public LengthFreeEncoding {
 public:
  Learned(io::StrictObject& options, const EncodingShape& shape) {
    const int64_t positions = read_table_positions(options, shape.max_position_embeddings);
    table_PE_ = register_parameter("weight", drawn({positions, shape.input_size}, shape));
  }

  at::Tensor input(const TokenPositions& positions, at::ScalarType dtype) override {
    if (positions.ids.numel() > 0) {
      check(positions.ids.min().item<int64_t>());
      check(positions.ids.max().item<int64_t>());
    }
    return at::embedding(table_PE_, positions.ids).to(dtype);
  }

  void check_length(int64_t tokens) const override { check(tokens - 1); }
  bool acts_in_layers() const override { return false; }

 private:
  void check(int64_t position) const {
    if (position >= 0 && position < table_PE_->size(0)) return;
    fail("learned", "positions must be in 0..{}, the rows of the table (max_position_embeddings), got {}",
         table_PE_->size(0) - 1, position);
  }

  Parameter table_PE_;
};

// Fixed sinusoids of the position, added to the input embeddings (Vaswani et al. 2017; arXiv 2104.09864 Eq. 4 where k
// means the position i, spec R-ABS-03..05). Defined at every position, without parameters or a stored table.
// scale_embedding first multiplies word embeddings, but not token types, by sqrt(E) (Vaswani et al. section 3.4).
class Sinusoidal : public LengthFreeEncoding {
 public:
  Sinusoidal(io::StrictObject& options, const EncodingShape& shape)
      : width_(shape.input_size), input_(read_sinusoidal(options)) {}

  at::Tensor input(const TokenPositions& positions, at::ScalarType dtype) override {
    return sinusoid(positions.real.defined() ? positions.real : positions.ids, width_, input_.layout, dtype).to(dtype);
  }

  at::Tensor words(const at::Tensor& words_BTE, const at::Tensor&, const TokenPositions&) const override {
    return input_.scale_embedding ? words_BTE * std::sqrt(static_cast<double>(width_)) : words_BTE;
  }
  bool changes_words() const override { return input_.scale_embedding; }
  bool acts_in_layers() const override { return false; }

 private:
  int64_t width_;
  SinusoidalInput input_;
};

// Complex word embeddings (Wang et al. 2020, arXiv 1912.12333 section 2): dimension i of word j at position p is
//
//   r_ji e^{i (omega_ji p + theta_ji)}
//
// with trained amplitudes r, frequencies omega and initial phases theta for each word and dimension. The E numbers of a
// word's embedding are read as E/2 complex numbers, which are r e^{i theta}: elements (2i, 2i+1) are real and imaginary
// part. So omega_ji p rotates the pairs of a word's embedding, and the model's embedding table holds r and theta. This
// encoding holds the frequencies: one for each word and dimension, for each dimension (shared by words in the paper),
// or for each word (shared by dimensions). Frequencies per dimension start as in sinusoids, 10000^(-2i/E), as in the
// authors' code; frequencies per word are drawn from [0, 1).
//
// Not implemented: complex layers, whose scores are |q.k|. The encoder takes real and imaginary parts as its input.
// Positions count from 0. Token types and other inputs are added after the rotation. A language model head that is tied
// to the table uses words at position 0.
enum class FrequencySharing { kNone, kWords, kDimensions };

// [V, E/2], [E/2] or [V, 1].
at::Tensor frequency_start(FrequencySharing sharing, int64_t words, int64_t pairs) {
  const bool by_dimension = sharing != FrequencySharing::kDimensions;
  if (EmptyParameters::wanted()) {
    if (sharing == FrequencySharing::kWords) return at::empty({pairs}, at::kFloat);
    return at::empty({words, by_dimension ? pairs : 1}, at::kFloat);
  }
  if (!by_dimension) return at::rand({words, 1}, at::kFloat);
  const at::Tensor exponent_P = at::arange(pairs, at::kDouble) / -static_cast<double>(pairs);
  const at::Tensor start_P = at::pow(10000.0, exponent_P).to(at::kFloat);
  return sharing == FrequencySharing::kWords ? start_P : start_P.repeat({words, 1});
}

class ComplexWords : public LengthFreeEncoding {
 public:
  ComplexWords(io::StrictObject& options, const EncodingShape& shape)
      : vocab_size_(shape.vocab_size), width_(shape.input_size) {
    if (width_ % 2 != 0) fail("position_encoding", "embedding_size must be even for complex, got {}", width_);
    if (vocab_size_ < 1) fail("position_encoding", "vocab_size must be given for complex, got {}", vocab_size_);
    const auto sharing = options.choice("share", FrequencySharing::kNone,
                                        {{"none", FrequencySharing::kNone},
                                         {"words", FrequencySharing::kWords},
                                         {"dimensions", FrequencySharing::kDimensions}});
    freqs_ = register_parameter(sharing == FrequencySharing::kWords ? "freqs" : "word_freqs",
                                frequency_start(sharing, vocab_size_, width_ / 2));
  }

  at::Tensor words(const at::Tensor& words_BTE, const at::Tensor& ids_BT,
                   const TokenPositions& positions) const override {
    check_words(words_BTE, ids_BT);
    const NoAutocast no_autocast;
    const at::Tensor freqs_BTP = freqs_->dim() == 1 ? freqs_->view({1, 1, -1}) : at::embedding(freqs_, ids_BT);
    const at::Tensor angle_BTP =
        (positions.ids.to(at::kDouble).unsqueeze(-1) * freqs_BTP.to(at::kDouble)).expand({-1, -1, width_ / 2});
    const at::ScalarType type = ops::row_dtype(words_BTE.scalar_type());
    const Rotation rows{.cos = angle_BTP.cos().to(type), .sin = angle_BTP.sin().to(type)};
    return rotated(words_BTE.unsqueeze(2), rows, "pairs").squeeze(2);
  }

  bool changes_words() const override { return true; }
  const char* beyond_terms() const override { return "word embeddings that turn with the position"; }
  bool acts_in_layers() const override { return false; }

 private:
  void check_words(const at::Tensor& words_BTE, const at::Tensor& ids_BT) const {
    if (words_BTE.size(2) != width_) {
      fail("complex", "words must have the {} elements of an embedding, got {}", width_, words_BTE.size(2));
    }
    if (ids_BT.numel() == 0) return;
    const auto [low, high] = at::aminmax(ids_BT);
    const int64_t first = low.item<int64_t>(), last = high.item<int64_t>();
    if (first >= 0 && last < vocab_size_) return;
    fail("complex", "token ids must be in 0..{}, got {}", vocab_size_ - 1, first < 0 ? first : last);
  }

  int64_t vocab_size_, width_;
  Parameter freqs_;  // [V, E/2], [E/2] or [V, 1]
};

// FLOATER (Liu et al. 2020, arXiv 2003.09229 section 3): position vectors follow an ordinary differential equation with
// a trained network,
//
//   dp/dt = h(t, p)     p_l at position n: the solution at t = n time_step     h(t, p) = W_2 [relu(W_1 [p; t] + b_1);
//   t] + b_2
//
// h is the same for all layers, and each layer l has a trained p_l(0). A layer's vector is added to the input of its
// query, key and value projections, W (x_n + p_l(n)), the first form in the paper. The authors' code instead has three
// initial values for each layer, for vectors added to queries, keys and values after the projections. It also adds a
// sinusoid to the input, which here is a second encoding.
//
// The classical fourth-order Runge-Kutta method solves the equation, with `steps` equal steps per position. Gradients
// are propagated through these steps (the paper uses the adjoint equation). h and its Xavier initialisation are as in
// the authors' code; p_l(0) starts as N(0, initializer_range^2), which differs from it.
constexpr int64_t kLastSolved = 65535;  // time and memory grow with the last position

// W [x; t] + b, W [C, C + 1].
struct TimedLinear {
  at::Tensor weight_CC, of_time_C, bias_C;

  TimedLinear(const at::Tensor& weight, const at::Tensor& bias, at::ScalarType type)
      : weight_CC(weight.to(type).narrow(1, 0, weight.size(0))),
        of_time_C(weight.to(type).select(1, weight.size(0))),
        bias_C(bias.to(type)) {}

  at::Tensor operator()(double t, const at::Tensor& x_LC) const {
    return at::linear(x_LC, weight_CC, bias_C + of_time_C * t);
  }
};

struct Velocity {
  TimedLinear first, second;

  at::Tensor operator()(double t, const at::Tensor& p_LC) const { return second(t, at::relu(first(t, p_LC))); }
};

// p at t + dt.
at::Tensor runge_kutta_step(const Velocity& h, double t, double dt, const at::Tensor& p_LC) {
  const at::Tensor k1 = h(t, p_LC);
  const at::Tensor k2 = h(t + dt / 2, p_LC + k1 * (dt / 2));
  const at::Tensor k3 = h(t + dt / 2, p_LC + k2 * (dt / 2));
  const at::Tensor k4 = h(t + dt, p_LC + k3 * dt);
  return p_LC + (k1 + 2 * (k2 + k3) + k4) * (dt / 6);
}

class Floater : public LengthFreeEncoding {
 public:
  Floater(io::StrictObject& options, const EncodingShape& shape)
      : time_step_(options.number("time_step", 0.01, {0, 100, io::NumberRange::Ends::kOpenLow})),
        steps_(options.integer("steps", 1, 1, 1000)),
        start_(layer_parameters(*this, shape.layers, "start", [&] { return drawn({shape.hidden_size}, shape); })) {
    const int64_t width = shape.hidden_size;
    const auto h = child(*this, "h");
    for (const char* name : {"0", "1"}) {
      const auto layer = child(*h, name);
      at::Tensor weight = at::empty({width, width + 1}, at::kFloat);
      if (!EmptyParameters::wanted()) weight.normal_(0, std::sqrt(2.0 / static_cast<double>(2 * width + 1)));
      weights_.emplace_back(layer->register_parameter("weight", weight));
      biases_.emplace_back(layer->register_parameter("bias", at::zeros({width}, at::kFloat)));
    }
  }

  Shared compute_shared(const Positions& positions, at::ScalarType) override {
    const at::Tensor& ids_BT = positions.query.ids;
    int64_t last = 0;
    if (ids_BT.numel() > 0) {
      last = ids_BT.max().item<int64_t>();
      check(ids_BT.min().item<int64_t>());
      check(last);
    }
    return {.rows_PLC = solved(last)};
  }

  at::Tensor layer_input(int64_t layer, const Shared& shared) const override {
    return at::embedding(shared.rows_PLC.select(1, layer), shared.positions.query.ids);
  }

  void check_length(int64_t tokens) const override { check(tokens - 1); }
  const char* beyond_terms() const override { return "vectors added to the input of every layer"; }

 private:
  static void check(int64_t position) {
    if (position >= 0 && position <= kLastSolved) return;
    fail("floater", "positions must be in 0..{}, up to which the equation is solved, got {}", kLastSolved, position);
  }

  // p of positions 0..last, [P, L, C].
  at::Tensor solved(int64_t last) const {
    const NoAutocast no_autocast;
    const at::ScalarType type = at::promote_types(weights_[0]->scalar_type(), at::kFloat);
    const Velocity h{TimedLinear(weights_[0], biases_[0], type), TimedLinear(weights_[1], biases_[1], type)};
    at::Tensor p_LC = at::stack(std::vector<at::Tensor>(start_.begin(), start_.end())).to(type);
    std::vector<at::Tensor> rows = {p_LC};
    const double dt = time_step_ / static_cast<double>(steps_);
    for (int64_t step = 0; step < last * steps_; ++step) {
      p_LC = runge_kutta_step(h, static_cast<double>(step) * dt, dt, p_LC);
      if ((step + 1) % steps_ == 0) rows.push_back(p_LC);
    }
    return at::stack(rows);
  }

  double time_step_;
  int64_t steps_;
  std::vector<Parameter> start_;             // [C] for each layer
  std::vector<Parameter> weights_, biases_;  // of h
};

}  // namespace

EncodingEntry none() {
  return {.info = {.name = "none",
                   .summary = "no position at all",
                   .equation = "score = s q.k",
                   .source = "the baseline without order; arXiv 2104.09864 section 2.1",
                   .extrapolates = "yes, order is not seen at any length",
                   .pairwise = EncodingInfo::Pairwise::kNo},
          .make = construct<NoEncoding>};
}

EncodingEntry learned() {
  return {.info = {.name = "learned",
                   .summary = "a trained vector for each position, added to the input",
                   .equation = "x_i + p_i",
                   .source = "Devlin et al. 2018; arXiv 2104.09864 Eq. 3",
                   .parameters = "positions * E",
                   .extrapolates = "no, error beyond the table",
                   .keys = {"max_position_embeddings = that of the model"},
                   .invariance = EncodingInfo::Invariance::kNone,
                   .pairwise = EncodingInfo::Pairwise::kNo},
          .make = construct<Learned>};
}

EncodingEntry sinusoidal() {
  return {.info = {.name = "sinusoidal",
                   .summary = "fixed sines and cosines of the position, added to the input",
                   .equation = "x_i + p_i, p_i[2t] = sin(i 10000^(-2t/E)), p_i[2t+1] = cos(i 10000^(-2t/E))",
                   .source = "Vaswani et al. 2017 section 3.5; arXiv 2104.09864 Eq. 4",
                   .extrapolates = "defined at every position; models seldom work well beyond the trained ones",
                   .keys = {"layout = \"interleaved\" (or \"half\", \"sine-only\")", "scale_embedding = false"},
                   .invariance = EncodingInfo::Invariance::kNone,
                   .pairwise = EncodingInfo::Pairwise::kNo},
          .make = construct<Sinusoidal>};
}

EncodingEntry complex_words() {
  return {
      .info = {.name = "complex",
               .summary = "the pairs of a word's embedding are complex numbers, which turn with the position at the "
                          "word's own trained frequencies",
               .equation = "x_p = z_j e^{i omega_j p} of word j, z_j = r_j e^{i theta_j}",
               .source = "Wang et al. 2020, arXiv 1912.12333 section 2",
               .parameters = "V * E/2; E/2 or V with share",
               .cost = "0; T * E once",
               .extrapolates = "defined at every position; worse beyond the trained ones (docs/report.md)",
               .keys = {"share = none (or words, dimensions)"},
               .invariance = EncodingInfo::Invariance::kNone,
               .pairwise = EncodingInfo::Pairwise::kNo},
      .make = construct<ComplexWords>};
}

EncodingEntry floater() {
  return {.info = {.name = "floater",
                   .summary = "vectors whose course over positions solves a differential equation with a trained "
                              "network, added to the input of every layer's attention",
                   .equation = "W (x_n + p_l(n time_step)), dp/dt = h(t, p), p_l(0) trained",
                   .source = "Liu et al. 2020, arXiv 2003.09229 section 3",
                   .parameters = "L * C + 2 C (C + 2)",
                   .cost = "T * C; once 8 * steps * L * C^2 multiply-adds for each position, one after another",
                   .extrapolates = "defined to position 65535; worse beyond the trained ones (docs/report.md)",
                   .keys = {"time_step = 0.01", "steps = 1"},
                   .invariance = EncodingInfo::Invariance::kNone,
                   .pairwise = EncodingInfo::Pairwise::kNo},
          .make = construct<Floater>};
}

}  // namespace rf::nn::posenc
