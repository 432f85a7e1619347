// A stored sin|cos table as an encoding (stored_rotation.h); pairs (2i, 2i+1).
#include "stored_rotation.h"

#include <algorithm>

#include "rf/io/error.h"

namespace rf::nn {

namespace {

class StoredRotation : public Encoding {
 public:
  explicit StoredRotation(const at::Tensor& table_MD) : table_MD_(table_MD) {}

  Shared compute_shared(const Positions& positions, at::ScalarType dtype) override {
    Shared shared;
    shared.terms.query = rows(positions.query.ids, dtype);
    shared.terms.key = positions.same_tokens() ? shared.terms.query : rows(positions.key.ids, dtype);
    return shared;
  }

  void check_length(int64_t tokens) const override { check_last(tokens - 1); }
  int64_t last_new_length() const override { return 1; }

 private:
  void check_last(int64_t last) const {
    if (last < table_MD_.size(0)) return;
    fail("model", "positions must be below the {} rows of the checkpoint's own position table, got {}",
         table_MD_.size(0), last);
  }

  ops::Rotation rows(const at::Tensor& positions_BT, at::ScalarType dtype) const {
    if (positions_BT.numel() > 0) check_last(positions_BT.max().item<int64_t>());
    const at::Tensor rows_BTD = table_MD_.to(ops::row_dtype(dtype)).index({positions_BT});
    const int64_t half = rows_BTD.size(-1) / 2;
    return {.cos = rows_BTD.narrow(-1, half, half), .sin = rows_BTD.narrow(-1, 0, half)};
  }

  at::Tensor table_MD_;
};

}  // namespace

std::shared_ptr<Encoding> make_stored_rotation(const at::Tensor& table_MD) {
  return std::make_shared<StoredRotation>(table_MD);
}

}  // namespace rf::nn
