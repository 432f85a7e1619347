// No position encoding: attention treats its keys as a set (R-ATT-03).
#include "rf/nn/encoding.h"

namespace rf::nn::posenc {

namespace {

class NoEncoding : public Encoding {
  int64_t last_new_length() const override { return 1; }
  bool acts_in_layers() const override { return false; }
};

}  // namespace

EncodingEntry none() {
  return {.info = {.name = "none",
                   .summary = "no position at all",
                   .equation = "score = s q.k",
                   .source = "the baseline without order; arXiv 2104.09864 section 2.1",
                   .terms = "-",
                   .parameters = "0",
                   .cost = "0",
                   .extrapolates = "yes, order is not seen at any length",
                   .file = "nn/posenc/none.cpp",
                   .test = "tests/nn/test_encodings.py"},
          .make = [](io::StrictObject&, const EncodingShape&) -> std::shared_ptr<Encoding> {
            return std::make_shared<NoEncoding>();
          }};
}

}  // namespace rf::nn::posenc
