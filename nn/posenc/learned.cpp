// A trained vector for each position, added to the input embeddings before their layer norm (BERT; Eq. 3, R-ABS-02). A
// position beyond the table is an error.
#include <ATen/ops/embedding.h>
#include <ATen/ops/max.h>
#include <ATen/ops/min.h>

#include "layer_parameters.h"
#include "rf/io/error.h"
#include "rf/model/computed_encoding.h"
#include "rf/nn/encoding.h"

namespace rf::nn::posenc {

namespace {

class Learned : public Encoding {
 public:
  Learned(int64_t positions, const EncodingShape& shape)
      : table_PE_(register_parameter("weight", drawn({positions, shape.input_size}, shape))) {}

  at::Tensor input(const TokenPositions& positions, at::ScalarType dtype) override {
    if (positions.ids.numel() > 0) {
      check(positions.ids.min().item<int64_t>());
      check(positions.ids.max().item<int64_t>());
    }
    return at::embedding(table_PE_, positions.ids).to(dtype);
  }

  void check_length(int64_t tokens) const override { check(tokens - 1); }
  int64_t last_new_length() const override { return 1; }
  bool acts_in_layers() const override { return false; }

 private:
  void check(int64_t position) const {
    if (position >= 0 && position < table_PE_->size(0)) return;
    fail("learned", "positions must be in 0..{}, the rows of the table (max_position_embeddings), got {}",
         table_PE_->size(0) - 1, position);
  }

  Parameter table_PE_;
};

}  // namespace

EncodingEntry learned() {
  return {.info = {.name = "learned",
                   .summary = "a trained vector for each position, added to the input",
                   .equation = "x_i + p_i",
                   .source = "Devlin et al. 2018; arXiv 2104.09864 Eq. 3",
                   .terms = "-",
                   .parameters = "positions * E",
                   .cost = "0",
                   .extrapolates = "no, error beyond the table",
                   .file = "nn/posenc/learned.cpp",
                   .test = "tests/nn/test_learned.py",
                   .keys = {"max_position_embeddings = that of the model"},
                   .invariance = EncodingInfo::Invariance::kNone},
          .make = [](io::StrictObject& options, const EncodingShape& shape) -> std::shared_ptr<Encoding> {
            return std::make_shared<Learned>(read_table_positions(options, shape.max_position_embeddings), shape);
          }};
}

}  // namespace rf::nn::posenc
