// What transformers' model types do with the rotation that config.json describes: a table, one line for each type. A
// Python test compares every line with transformers' own classes (tests/cli/test_doctor_families.py).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "rf/model/rotary_rows.h"

namespace rf {

// How large the rotated part of a head is.
enum class RotarySize {
  kWhole,  // the head
  kShare,  // int(head size * share)
  kDim,    // rotary_dim elements
};

// Which layers do not rotate.
enum class UnrotatedLayers {
  kNone,
  kListed,        // those with a 0 in no_rope_layers; without the list, every no_rope_layer_interval-th (4)
  kFull,          // full_attention in layer_types; without the list, every sliding_window_pattern-th (4)
  kFullIfWindow,  // the same where sliding_window is given
};

// One rotation for all layers, or one each for full_attention and sliding_attention.
enum class LayerTypes {
  kOne,
  kTwo,        // rope_scaling is that of full_attention
  kTwoScaled,  // rope_scaling is that of both
};

struct RotaryFamily {
  std::string_view model_type;
  int64_t length = 2048;        // where max_position_embeddings is absent
  int64_t original_length = 0;  // where original_max_position_embeddings is absent at the top level; 0: none
  RotaryLayout layout = RotaryLayout::kHalves;
  double base = 10000;
  RotarySize size = RotarySize::kWhole;
  double part = 1;  // kShare: the share, kDim: the elements, where the key is absent
  std::string_view part_key = "partial_rotary_factor";  // at the top level; inside, the key is always this one
  std::string_view base_key = "rope_theta";  // at the top level; "": the base is fixed, and so is the scaling
  std::string_view head_key = "head_dim";    // of the head size, or of the part of a head that a latent key has
  int64_t head_dim = 0;                      // where head_key is absent; 0: hidden_size / num_attention_heads
  LayerTypes layers = LayerTypes::kOne;
  double local_base = 0;  // of sliding_attention
  std::string_view local_base_key = "";
  UnrotatedLayers unrotated = UnrotatedLayers::kNone;
  std::string_view pairs_key = "";  // true: pairs, false: halves
  bool reads_scaling = true;        // rope_parameters or rope_scaling
  bool plain_projections = true;    // q_proj, k_proj and v_proj have heads times the head size rows
};

std::span<const RotaryFamily> rotary_families();
const RotaryFamily* find_rotary_family(std::string_view model_type);  // nullptr for another type

// How a model type that does not rotate encodes positions: "learned vectors at the input"; "" for an unknown type.
std::string_view other_encoding(std::string_view model_type);

}  // namespace rf
