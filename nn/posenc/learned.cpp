// A trained vector for each position, added to the input embeddings before their layer norm (BERT; Eq. 3, R-ABS-02). A
// position beyond the table is an error.
#include <ATen/ops/embedding.h>

#include "layer_parameters.h"
#include "rf/io/error.h"
#include "rf/model/computed_encoding.h"
#include "rf/nn/devices.h"

namespace rf::nn::posenc {

namespace {

class Learned : public LengthFreeEncoding {
 public:
  Learned(io::StrictObject& options, const EncodingShape& shape) : first_(shape.first_row) {
    const int64_t positions = read_table_positions(options, shape.max_position_embeddings) + first_;
    table_PE_ = register_parameter("weight", drawn({positions, shape.input_size}, shape));
  }

  at::Tensor input(const TokenPositions& positions, at::ScalarType dtype) override {
    if (positions.ids.numel() > 0) {
      check(positions.ids.min().item<int64_t>() + (first_ > 0 ? 1 : 0));  // the row before the first is of padding
      check(positions.ids.max().item<int64_t>());
    }
    const at::Tensor rows = first_ == 0 ? positions.ids : positions.ids + first_;
    return at::embedding(table_PE_, on_device(rows, table_PE_->device()), first_ - 1).to(dtype);
  }

  void check_length(int64_t tokens) const override { check(tokens - 1); }
  bool acts_in_layers() const override { return false; }

 private:
  void check(int64_t position) const {
    const int64_t positions = table_PE_->size(0) - first_;
    if (position >= 0 && position < positions) return;
    fail("learned", "positions must be in 0..{}, the rows of the table (max_position_embeddings), got {}",
         positions - 1, position);
  }

  int64_t first_;
  Parameter table_PE_;
};

}  // namespace

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

}  // namespace rf::nn::posenc
