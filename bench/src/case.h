// A case of `roformer bench` and what the cases share. One file a kernel; cases.cpp has the list.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "rf/bench/bench.h"
#include "rf/status.h"

namespace rf::bench {

using Tensors = std::vector<at::Tensor>;

enum class When { kAlways, kWithPeers };

// One way to compute a case.
struct Side {
  std::string name;
  std::function<Tensors()> run;    // one call; what it computed, which the next call may overwrite
  std::function<Tensors()> truth;  // in float64; called right before the run to compare. Empty: that of the side before
  When when = When::kAlways;
  std::function<Tensors()> plain = {};  // the plain formula in the type of the case, in addition to `truth`
};

enum class Unit { kOperations, kBytes };

struct Case {
  std::string name;  // kernel/variant/size/type[/pass]
  Unit unit;
  double amount;                             // of a call: floating-point operations, or bytes read and written
  std::function<std::vector<Side>()> sides;  // with arrays of their own, random; ours first
};
using Cases = std::vector<Case>;

void add_attention(Cases& cases, Sizes sizes);
void add_cross_entropy(Cases& cases, Sizes sizes);
void add_gelu(Cases& cases, Sizes sizes);
void add_linear(Cases& cases, Sizes sizes);
void add_linear_attention(Cases& cases, Sizes sizes);
void add_norm(Cases& cases, Sizes sizes);
void add_rope(Cases& cases, Sizes sizes);
void add_softmax(Cases& cases, Sizes sizes);

struct Type {
  const char* name;
  at::ScalarType torch;
  rf_dtype core;
  int64_t bytes;
};
inline constexpr Type kTypes[] = {{"float32", at::kFloat, RF_F32, 4}, {"bfloat16", at::kBFloat16, RF_BF16, 2}};

enum class Pass { kForward, kForwardBackward };
inline constexpr Pass kPasses[] = {Pass::kForward, Pass::kForwardBackward};
const char* name_of(Pass pass);

// Throws Error with rf_last_error() unless the status is RF_OK.
void must(rf_status status);

// Sizes of a struct of the C interface, everything else 0.
template <typename Struct>
Struct sized() {
  Struct empty = {};
  empty.struct_size = sizeof(Struct);
  return empty;
}

at::Tensor normal(at::IntArrayRef shape, at::ScalarType dtype);

}  // namespace rf::bench
