// The operators of rf/ops/ops.h, and rope: schemas, flat argument lists, and calls through the dispatcher, so that
// autograd, torch.compile and every backend see the call.
#pragma once

#include <optional>
#include <string>
#include <tuple>

#include "dispatcher.h"
#include "rf/ops/ops.h"

namespace rf::ops {

inline constexpr const char* kRopeSchema =
    "rope(Tensor x, Tensor positions, *, str layout, float base=10000.0, Tensor? freqs=None, float scale=1.0, "
    "int? rotary_dim=None, bool heads_first=False, str direction=\"forward\") -> Tensor";
// Returns nothing, the form of a mutating operator that torch.compile can functionalize in every supported version.
inline constexpr const char* kRopeInplaceSchema =
    "rope_(Tensor(a!) x, Tensor positions, *, str layout, float base=10000.0, Tensor? freqs=None, float scale=1.0, "
    "int? rotary_dim=None, bool heads_first=False, str direction=\"forward\") -> ()";
inline constexpr const char* kRotateSchema =
    "rotate(Tensor x, Tensor cos, Tensor sin, str layout, *, str direction=\"forward\") -> Tensor";
inline constexpr const char* kRopeTableSchema =
    "rope_table(Tensor positions, Tensor freqs, Tensor? freqs_lo=None, float scale=1.0, ScalarType dtype=float) -> "
    "(Tensor cos, Tensor sin)";
// seed and stream are SymInt, so that a compiled training step is not specialised on the numbers of one step.
inline constexpr const char* kDropoutSchema = "dropout(Tensor x, float p, SymInt seed, SymInt stream) -> Tensor";

// Rotary position embedding (core/include/rf/rope.h has the equation): the arguments of rope and rope_.
struct RopeCall {
  at::Tensor x, positions;
  std::string layout;  // "pairs" or "halves"; no default
  double base = 10000.0;
  at::Tensor freqs = {};                   // float64 [R/2], in place of base; may be trained
  double scale = 1.0;                      // multiplies cos and sin
  std::optional<int64_t> rotary_dim = {};  // default: the whole head, or 2 * freqs
  bool heads_first = false;                // x is [..,H,T,D] instead of [..,T,H,D]
  std::string direction = "forward";       // "forward", "transpose" or "inverse"
};
void for_each_argument(ArgumentsOf<RopeCall> auto& call, const auto& visit) {
  visit(call.x), visit(call.positions), visit(call.layout), visit(call.base), visit(call.freqs), visit(call.scale);
  visit(call.rotary_dim), visit(call.heads_first), visit(call.direction);
}

// x: float32, float64, bfloat16 or float16, any strides with a contiguous last dimension (others are copied).
// positions: [T] or [B,T], integers or float64. Gradients, of any order, to x and freqs. Result: a new contiguous
// tensor of x's shape and dtype.
struct RopeOperator {
  using Call = RopeCall;
  using Results = std::tuple<at::Tensor>;
  static constexpr const char* kName = "roformer::rope";
};
// The same in place. As with PyTorch's in-place operators, autograd refuses a leaf that requires grad.
struct RopeInplaceOperator {
  using Call = RopeCall;
  using Results = std::tuple<>;
  static constexpr const char* kName = "roformer::rope_";
};

// The rules of rope's arguments.
void check_rope_arguments(const RopeCall& call);

// rope composed of rope_table and rotate, so that gradients reach freqs, which must be defined.
at::Tensor rope_by_rows(const RopeCall& call);

// The arguments of rope_table.
struct RopeTableCall {
  at::Tensor positions, freqs, freqs_lo;
  double scale = 1.0;
  at::ScalarType dtype = at::kFloat;
};
void for_each_argument(ArgumentsOf<RopeTableCall> auto& call, const auto& visit) {
  visit(call.positions), visit(call.freqs), visit(call.freqs_lo), visit(call.scale), visit(call.dtype);
}
struct RopeTableOperator {
  using Call = RopeTableCall;
  using Results = std::tuple<at::Tensor, at::Tensor>;  // cos and sin
  static constexpr const char* kName = "roformer::rope_table";
};

// The arguments of dropout.
struct DropoutCall {
  at::Tensor x;
  double p = 0;
  c10::SymInt seed = 0, stream = 0;
};
void for_each_argument(ArgumentsOf<DropoutCall> auto& call, const auto& visit) {
  visit(call.x), visit(call.p), visit(call.seed), visit(call.stream);
}
struct DropoutOperator {
  using Call = DropoutCall;
  using Results = std::tuple<at::Tensor>;
  static constexpr const char* kName = "roformer::dropout";
};

}  // namespace rf::ops
