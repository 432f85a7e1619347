// No position encoding: attention treats its keys as a set (R-ATT-03).
#include "rf/nn/encoding.h"

namespace rf::nn::posenc {

namespace {

class NoEncoding : public LengthFreeEncoding {
 public:
  NoEncoding(io::StrictObject&, const EncodingShape&) {}
  bool acts_in_layers() const override { return false; }
};

}  // namespace

EncodingEntry none() {
  return {.info = {.name = "none",
                   .summary = "no position at all",
                   .equation = "score = s q.k",
                   .source = "the baseline without order; arXiv 2104.09864 section 2.1",
                   .extrapolates = "yes, it has no positions",
                   .pairwise = EncodingInfo::Pairwise::kNo},
          .make = construct<NoEncoding>};
}

}  // namespace rf::nn::posenc
