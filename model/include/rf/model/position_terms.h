// position_terms.safetensors of a model directory: the terms of attention (rf/attention_terms.h) that a position
// encoding sets and that are constants of the checkpoint, computed once, so that a program needs neither the encoding's
// formula nor torch. nn writes it, the engine reads it; training does not. Rotations and vectors added to the input are
// not in it (rf/model/computed_encoding.h).
//
// Tensors are float32. A term that all layers share is named as in the list of terms, for example "bias"; otherwise
// layer i's is "layers.<i>.<term>". Shapes are those of the list; rows of width One have no last dimension:
//
//   key_table, query_table, value_table  [H or 1, hi - lo + 1, D]     bias  [H or 1, hi - lo + 1]
//   gate                                 [H or 1, hi - lo + 1, D or 1]
//   content_bias, position_bias          [H, D]                       reset_row, reset_col  [H]
//   position_query, position_key         [H, positions, D]
//   rotary_frequencies                   [1, R/2], or [2, R/2]: within and beyond the training length; those of
//                                        precision float32, which are torch's results
//
// Metadata, all texts:
//
//   format   "roformer position terms 1"
//   weights  position_terms_hash() of what the terms were made from
//   tokens   the longest sequence that the rows serve; "all" where every longer one takes the same rows
//   longest  the longest sequence that the encoding reads; "all" without a limit
//   scale    s, where the encoding sets it
//   <term>.range   "lo hi" of a table
//
// Where an encoding sets a term that is no constant of the checkpoint, numbers of tokens or rotations that training
// alone computes, the file has no tensors, and besides format and weights only
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
    int64_t lo = 0, hi = 0;  // of tables
  };
  using Terms = std::map<std::string, Term>;  // by their names in the list of terms

  Terms shared;               // of all layers, and rotary_frequencies
  std::vector<Terms> layers;  // the others of each layer
  std::optional<double> scale;
  int64_t tokens = kAllTokens, longest = kAllTokens;
  std::string lacking = {};  // a term that no file has; empty: none
};

// 128-bit hash (XXH3, 32 hexadecimal digits) of what terms are made from: the configuration's encodings and sizes, the
// trained tensors of encodings, and every layer's projections. tensors: of the checkpoint, by name.
std::string position_terms_hash(const ModelConfig& config, const std::map<std::string, const io::TensorView*>& tensors);

void write_position_terms(const std::string& model_dir, const PositionTerms& terms, const std::string& hash);

class PositionTermsFile {
 public:
  // Throws Error, which names the command that writes the file, where there is none, and where it belongs to other
  // weights; where a term is lacking, which it names; and for a damaged file: a name, shape, range or dtype that does
  // not fit the configuration, a term that a layer lacks, a number that is not finite.
  PositionTermsFile(const std::string& model_dir, const ModelConfig& config, const std::string& hash);

  const PositionTerms& terms() const { return terms_; }  // values are valid as long as this object

 private:
  io::SafetensorsFile file_;
  PositionTerms terms_;
};

// "roformer bake --model <dir> writes it", with --length where tokens are given: for messages.
std::string bake_command(const std::string& model_dir, std::optional<int64_t> tokens = std::nullopt);

}  // namespace rf
