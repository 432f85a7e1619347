// Encodings of the input embeddings, and none.
#include <ATen/TensorOperators.h>
#include <ATen/ops/embedding.h>

#include <cmath>

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

}  // namespace rf::nn::posenc
