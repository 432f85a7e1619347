// C interface of the rotation by given rows (rf/rope.h).
#include "common/arguments.h"
#include "common/element.h"
#include "common/error.h"
#include "common/target.h"
#include "rf/rope.h"
#include "rope/checks.h"
#include "rope/reference.h"
#include "rope/tiles.h"

namespace rf::core {
namespace {

class GivenRows final : public RopeRows {
 public:
  explicit GivenRows(const rf_rope_rows_args& args) : args_(args) {}

  void set_rows(int64_t b, int64_t first, RopeTile& tile, void*) const override {
    const int64_t bytes = row_element_bytes(args_.dtype);
    for (int64_t t = 0; t < tile.tokens; ++t) {
      const int64_t offset = (b * args_.row_stride_b + (first + t) * args_.row_stride_t) * bytes;
      tile.cos[t] = static_cast<const char*>(args_.cos) + offset;
      tile.sin[t] = static_cast<const char*>(args_.sin) + offset;
    }
  }
  int64_t space_bytes() const override { return 0; }

 private:
  const rf_rope_rows_args& args_;
};

void rotate_by_rows(const rf_rope_rows_args& args) {
  check_rows_args(args);
  const RopeData data = data_of("rotate", args, args.num_freqs);
  if (data.is_empty()) return;
  if (use_reference()) return ref::rotate(args);
  rotate_data(data, GivenRows(args));
}

}  // namespace
}  // namespace rf::core

extern "C" rf_status rf_rope_rotate(const rf_rope_rows_args* args) {
  return rf::core::guarded("rotate", [&] { rf::core::rotate_by_rows(rf::core::arguments("rotate", args)); });
}
