// position_terms.safetensors of a model directory: the terms of attention (rf/attention_terms.h) that a position
// encoding sets and that are constant for a checkpoint. They are computed once, so a program needs neither the
// encoding's formula nor torch. nn writes the file and the engine reads it; training does not use it. It does not
// contain rotations and vectors added to the input (rf/model/computed_encoding.h).
//
// Tensors are float32. A term shared by all layers has its name in the list of terms, for example "bias"; otherwise the
// term of layer i is "layers.<i>.<term>". Shapes are as in the list; rows of width One omit the last dimension:
//
//   key_table, query_table, value_table  [H or 1, hi - lo + 1, D]     bias  [H or 1, hi - lo + 1]
//   gate                                 [H or 1, hi - lo + 1, D or 1]
//   content_bias, position_bias          [H, D]                       reset_row, reset_col  [H]
//   position_query, position_key         [H, positions, D]
//   rotary_frequencies                   [1, R/2], or [2, R/2]: within and beyond the training length; for
//                                        precision float32, computed by torch
//
// Metadata, all strings:
//
//   format   "roformer position terms 1"
//   weights  position_terms_hash() of the weights and configuration
//   tokens   the longest sequence that the rows support; "all" if longer sequences use the same rows
//   longest  the longest sequence that the encoding supports; "all" without a limit
//   scale    s, if the encoding sets it
//   reads    "projections", if terms depend on the layers' projections
//   <term>.range   "lo hi" of a table
//
// An encoding may set a term that is not constant for a checkpoint: numbers per token, or rotations that only training
// computes. Then the file contains no tensors, and besides format and weights only
//
//   lacking  the name of that term and its symbol, "key_score (kappa)"
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rf/io/safetensors.h"
#include "rf/model/config.h"

namespace rf {

inline constexpr const char* kPositionTermsFile = "position_terms.safetensors";
inline constexpr int64_t kAllTokens = std::numeric_limits<int64_t>::max();

struct PositionTerms {
  struct Term {
    std::vector<int64_t> shape;
    std::span<const float> values;
    int64_t lo = 0, hi = 0;  // for tables
  };
  using Terms = std::map<std::string, Term>;  // by their names in the list of terms

  Terms shared;               // terms shared by all layers, and rotary_frequencies
  std::vector<Terms> layers;  // the other terms of each layer
  std::optional<double> scale;
  int64_t tokens = kAllTokens, longest = kAllTokens;
  bool reads_projections = false;
  std::string lacking = {};  // a term that a file cannot store; empty if all can be stored
};

// 128-bit hash (XXH3, 32 hexadecimal digits) of the inputs of the terms: the configuration's encodings and sizes, the
// trained tensors of encodings, and the projections of every layer. tensors: of the checkpoint, by name.
std::string position_terms_hash(const ModelConfig& config, const std::map<std::string, const io::TensorView*>& tensors);

void write_position_terms(const std::string& model_dir, const PositionTerms& terms, const std::string& hash,
                          const std::string& file = kPositionTermsFile);

class PositionTermsFile {
 public:
  // Throws Error if the file is missing or belongs to other weights, naming the command that writes it; if a term is
  // lacking, naming the term; and for a damaged file: a name, shape, range or dtype that does not match the
  // configuration, a missing term of a layer, or a value that is not finite.
  PositionTermsFile(const std::string& model_dir, const ModelConfig& config, const std::string& hash,
                    const std::string& file = kPositionTermsFile);

  const PositionTerms& terms() const { return terms_; }  // values are valid as long as this object

 private:
  io::SafetensorsFile file_;
  PositionTerms terms_;
};

// "roformer bake --model <dir> writes it", with --length if tokens are given: for messages.
std::string bake_command(const std::string& model_dir, std::optional<int64_t> tokens = std::nullopt);

}  // namespace rf
