// Parameters of rotary embedding: the frequencies, the rotated part of a head, and the precision. They are read from
// Hugging Face keys of version 5 ("rope_parameters") and version 4 ("rope_theta", "partial_rotary_factor" and
// "rope_scaling" as top-level keys); core/include/rf/rope_scaling.h has the formulas of the types.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rf/io/strict_object.h"

namespace rf {

// Named as in transformers, except three additions: "ntk" (a base stretched equally for every length); "hope" (Chen et
// al. 2024, arXiv 2410.21216: pairs that do not complete a turn within the training length are not rotated); and
// "clipped" (Li et al. 2026, arXiv 2602.05258: the frequencies of the clip_low_n slowest pairs times (1 + cos(pi j /
// (clip_low_n - 1))) / 2, j = 0, 1, .., a float64 number). "proportional" without a factor is p-RoPE (Barbero et al.
// 2024, arXiv 2410.06205), where p is partial_rotary_factor.
enum class RopeType { kDefault, kLinear, kNtk, kDynamic, kYarn, kLongrope, kLlama3, kProportional, kHope, kClipped };
const char* name(RopeType type);

// The keys of a type's dictionary besides rope_type (also spelled type), rope_theta and partial_rotary_factor, which
// apply to every type.
struct RopeTypeKeys {
  RopeType type;
  const char* name;
  std::vector<std::string> required, optional;
};
const RopeTypeKeys* find_rope_type(std::string_view name);  // nullptr for another name

// exact: accurate angles up to position 2^31. float32: bit for bit as in transformers, whose angles are float32
// products with errors up to half an ulp of the position.
enum class RopePrecision { kExact, kFloat32 };

struct RopeSpec {
  RopeType type = RopeType::kDefault;
  RopePrecision precision = RopePrecision::kExact;
  int64_t head_dim = 64;
  int64_t rotary_dim = 64;               // R: int(head_dim * partial_rotary_factor); proportional: head_dim
  int64_t rotating_pairs = 32;           // out of R/2; fewer only for proportional and hope
  double theta = 10000;                  // base of the frequencies
  double factor = 1;                     // times the training length
  double attention_factor = 1;           // scale of cos and sin
  int64_t trained_length = 512;          // tokens: original_max_position_embeddings; dynamic: max_position_embeddings
  double beta_fast = 32, beta_slow = 1;  // yarn
  bool truncate = true;                  // yarn
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  int64_t clip_low_n = 0;                            // clipped: pairs
  std::vector<double> short_factor, long_factor;     // longrope, [R/2]: to trained_length, and beyond it
  std::vector<int64_t> mrope_section;                // pairs per axis; empty unless the reader requested it
  std::vector<double> given;                         // [R/2], in place of the type's frequencies; empty: not given

  // Whether the frequencies of a sequence change as it grows.
  bool changes_with_length() const { return type == RopeType::kDynamic || type == RopeType::kLongrope; }
  bool operator==(const RopeSpec&) const = default;
};

enum class MropeSection { kUnknown, kRequired };

// Properties of the model that the reader needs.
struct RopeShape {
  int64_t head_dim = 64;
  int64_t max_position_embeddings = 512;
  MropeSection mrope_section = MropeSection::kUnknown;
};

// Reads rope_parameters or rope_scaling, rope_theta, partial_rotary_factor, original_max_position_embeddings and
// precision ("exact" or "float32") of `options`. Throws Error, naming key and value, for a key that the rope_type does
// not use or lacks, for both dictionaries together, for one key with two values, and for values out of range.
RopeSpec read_rope_spec(io::StrictObject& options, const RopeShape& shape);

// theta_i = hi[i] + lo[i], i < R/2.
struct RopeFrequencies {
  std::vector<double> hi, lo;
};

// The frequencies for a sequence of that many tokens (its highest position plus one); the length matters for dynamic
// and longrope only.
RopeFrequencies frequencies(const RopeSpec& spec, int64_t sequence_length);

}  // namespace rf
