// Rotary embedding of 12 heads of 64, every layout and place, compared with an out-of-place copy of the same bytes
// (memcpy, one share per thread) and the formula in torch. Tables are made before. Counted: x once, y once.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "formula.h"

namespace rf::bench {

namespace {

struct RopeCase {
  bool token_major;  // [T,H,D], else [H,T,D]
  rf_rope_layout layout;
  bool in_place;
  int64_t tokens;
  Type type;
};

struct DestroyRope {
  void operator()(rf_rope* rope) const { rf_rope_destroy(rope); }
};

std::shared_ptr<rf_rope> make_rope() {
  double hi[kHeadDim / 2], lo[kHeadDim / 2];
  must(rf_rope_frequencies(10000, kHeadDim, hi, lo));
  rf_rope* rope = nullptr;
  must(rf_rope_create(hi, lo, kHeadDim / 2, 1, 0, &rope));
  return {rope, DestroyRope()};
}

rf_rope_args arguments(const RopeCase& c, const at::Tensor& x, const at::Tensor& y) {
  auto args = sized<rf_rope_args>();
  args.dtype = c.type.core;
  args.layout = c.layout;
  args.direction = RF_ROPE_FORWARD;
  args.batch = 1;
  args.tokens = c.tokens;
  args.heads = kHeads;
  args.head_dim = kHeadDim;
  args.x = x.const_data_ptr();
  args.y = y.data_ptr();
  args.x_stride_t = args.y_stride_t = x.stride(c.token_major ? 0 : 1);
  args.x_stride_h = args.y_stride_h = x.stride(c.token_major ? 1 : 0);
  return args;
}

void copy_in_parallel(const at::Tensor& from, const at::Tensor& to) {
  const auto bytes = static_cast<int64_t>(from.nbytes());
#pragma omp parallel
  {
    constexpr int64_t kLine = 64;
    const int64_t share = (bytes / omp_get_num_threads() + kLine - 1) / kLine * kLine;
    const int64_t first = std::min(bytes, share * omp_get_thread_num());
    std::memcpy(static_cast<char*>(to.data_ptr()) + first, static_cast<const char*>(from.const_data_ptr()) + first,
                static_cast<size_t>(std::min(share, bytes - first)));
  }
}

std::vector<Side> rope_sides(const RopeCase& c) {
  const at::Tensor x = c.token_major ? normal({c.tokens, kHeads, kHeadDim}, c.type.torch)
                                     : normal({kHeads, c.tokens, kHeadDim}, c.type.torch);
  const at::Tensor y = x.clone();
  const std::shared_ptr<rf_rope> rope = make_rope();
  const auto ours = [rope, args = arguments(c, c.in_place ? y : x, y), x, y] {
    must(rf_rope_apply(rope.get(), &args));
    return Tensors{y};
  };
  auto [cos, sin] = rotation_rows(c.tokens, kHeadDim);
  if (c.token_major) cos = cos.unsqueeze(1), sin = sin.unsqueeze(1);
  const auto rotate = [layout = c.layout](const Tensors& in) { return rotated(in[0], in[1], in[2], layout); };
  const Formula formula = {{x, cos.to(c.type.torch), sin.to(c.type.torch)}, rotate};
  std::vector<Side> all = sides(ours, formula, formula, {{x, cos, sin}, rotate});
  if (c.in_place) all.pop_back();  // torch has no such thing
  const auto run_copy = [x, y] {
    copy_in_parallel(x, y);
    return Tensors{y};
  };
  all.push_back({"copy", run_copy, [x] { return Tensors{x.to(at::kDouble)}; }});
  return all;
}

}  // namespace

void add_rope(Cases& cases, Sizes sizes) {
  const std::vector<int64_t> tokens =
      sizes == Sizes::kTiny ? std::vector<int64_t>{5} : std::vector<int64_t>{4096, 32768};
  for (const int64_t count : tokens) {
    for (const Type& type : kTypes) {
      for (const bool token_major : {true, false}) {
        for (const rf_rope_layout layout : {RF_ROPE_PAIRS, RF_ROPE_HALVES}) {
          for (const bool in_place : {false, true}) {
            const RopeCase c = {token_major, layout, in_place, count, type};
            cases.push_back({fmt::format("rope/{}-{}-{}/{}/{}", token_major ? "thd" : "htd",
                                         layout == RF_ROPE_PAIRS ? "pairs" : "halves",
                                         in_place ? "in-place" : "out-of-place", count, type.name),
                             Unit::kBytes, 2.0 * static_cast<double>(count * kHeads * kHeadDim * type.bytes),
                             [c] { return rope_sides(c); }});
          }
        }
      }
    }
  }
}

}  // namespace rf::bench
