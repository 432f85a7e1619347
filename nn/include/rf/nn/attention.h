// Attention over terms (rf/attention_terms.h has the equation). Only this module decides which path computes it.
//
//   fused      the tiles of core (core/include/rf/attention.h): float32, bfloat16 and float16 on the CPU, every
//              term, memory O(T + S), first derivatives
//   explicit   products, softmax and gathers of torch, in every dtype, with derivatives of any order for every term
//   ref        the float64 loops of core/ref, forward and backward, written independently; also RF_KERNEL=ref
//   auto       fused where it can compute a call, else explicit
//
// The fused kernel does not support float64, other devices and RF_KERNEL=ref; Kernel::kFused then throws Error with the
// reason. Fused and explicit draw the same dropout from the same stream, except for packed rows: fused numbers the
// probabilities of each sequence separately (rf/ops/attention.h), explicit those in whole rows. Autocast lowers the
// inputs of the fused kernel like the inputs of torch's products.
//
// A query without keys to attend to has output 0 and gradient 0 in every path. Masked keys and values must be finite,
// as for torch: their weight is 0, and 0 times a NaN or an infinity is a NaN, in outputs or gradients. Only ref never
// reads them; fused replaces keys and values under a padding mask, [B,1,1,S], by zeros.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string_view>

#include "rf/nn/positions.h"
#include "rf/ops/terms.h"

namespace rf::nn {

using ops::CuSeqlens;
using ops::DistanceTable;
using ops::Rotation;
using ops::Terms;
using ops::TokenWindow;

enum class Kernel { kAuto, kFused, kExplicit, kRef };
Kernel kernel_of_name(std::string_view name);  // "auto", "fused", "explicit", "ref"
std::string_view name_of(Kernel kernel);
// The kernel that auto selects for CPU tensors of a dtype, without dropout.
Kernel automatic_kernel(at::ScalarType dtype);

// Shared by all layers of a forward pass: positions, and which keys a query may attend to. Created once; stores values
// that the first layer computes for the others (indices by distance, the mask as numbers).
class AttentionContext {
 public:
  // positions: query [1 or B, T], key [1 or B, S]. mask: bool, broadcasts to [B, H, T, S]; undefined: all keys.
  // Combined with the window.
  AttentionContext(Positions positions, at::Tensor mask, TokenWindow window, Kernel kernel = Kernel::kAuto);
  // Packed sequences in a batch of one; the window is relative to each sequence.
  AttentionContext(Positions positions, CuSeqlens cu_seqlens, TokenWindow window, Kernel kernel = Kernel::kAuto);
  // Packed rows: a query attends to keys of its sequence. sequence_ids_BS: int64, of the keys
  // (nn/src/packed_sequences.h); the queries are the last T keys of a row.
  static AttentionContext of_rows(Positions positions, at::Tensor sequence_ids_BS, TokenWindow window);

  struct State;
  State& state() const { return *state_; }

 private:
  std::shared_ptr<State> state_;
};

// The key of dropout's draws (core/include/rf/dropout.h): seed, step, call number within the step. A forward pass
// counts its dropout sites in its copy of the key.
struct DropoutKey {
  uint64_t seed = 0;
  uint64_t step = 0;
  uint32_t calls = 0;
  int64_t next_stream() { return static_cast<int64_t>(step << 16 | calls++); }
  // The key whose next stream is this one.
  static DropoutKey at(int64_t seed, int64_t stream) {
    return {static_cast<uint64_t>(seed), static_cast<uint64_t>(stream) >> 16, static_cast<uint32_t>(stream & 0xffff)};
  }
};

// q: [B,T,H,D]; k: [B,S,Hk,D], v: [B,S,Hk,Dv] with H a multiple of Hk (Dv = D with a value rotation or V). dropout: the
// probability of the probabilities' dropout, 0 outside training, with a key. Result: [B,T,H,Dv] in the dtype of q.
// Throws Error if terms were made for other positions or the kernel does not apply, c10::ValueError for every other bad
// argument (rf/ops/attention.h).
at::Tensor attention(const at::Tensor& q_BTHD, const at::Tensor& k_BSHD, const at::Tensor& v_BSHD, const Terms& terms,
                     const AttentionContext& context, double dropout = 0, DropoutKey* key = nullptr);

}  // namespace rf::nn
