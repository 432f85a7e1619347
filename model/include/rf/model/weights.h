// Names, shapes and roles of a RoFormer checkpoint's tensors (spec R-HF-03), described once for every reader and writer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rf/model/config.h"

namespace rf {

enum class WeightRole {
  kMatrix,     // initialised N(0, initializer_range), weight decay
  kEmbedding,  // the same; the pad row of word_embeddings starts at 0
  kBias,       // starts at 0, no decay
  kNormGain,   // starts at 1, no decay
  kNormBias,   // starts at 0, no decay
  kTable,      // encoder.embed_positions.weight: the frozen sin|cos table, not trained
};

struct WeightSpec {
  std::string name;  // as transformers names it in the task model, for example "roformer.embeddings.LayerNorm.weight"
  std::vector<int64_t> shape;
  WeightRole role;
};

// All tensors that transformers 5 writes for this head, in file order of the model's definition. The tied decoder
// tensors (cls.predictions.decoder.*) are not among them when tie_word_embeddings is true.
std::vector<WeightSpec> weight_specs(const RoFormerConfig& config, Head head);

// The half-layout sinusoid [max_position_embeddings, head_dim] that encoder.embed_positions.weight holds (R-ABS-04).
std::vector<float> position_table(int64_t rows, int64_t dim);

// A checkpoint's tensor names sorted out against the model's: which spec each file tensor fills, which specs may be left
// out (the position table), which file tensors are ignored and why (tied copies, unused projections). Throws Error on a
// missing or unexpected tensor, and on a wrong shape, with both shapes.
struct NamedShape {
  std::string name;
  std::vector<int64_t> shape;
};
struct WeightMatch {
  std::vector<std::string> load;         // tensors to copy, by name
  std::vector<std::string> computed;     // specs absent from the file that are computed instead
  std::vector<std::string> tied_copies;  // present although tied: must equal their source
  std::vector<std::string> ignored;      // present, harmless, not used
  std::vector<std::string> fresh;        // head tensors absent from the file (only when allow_fresh_head): initialised
  std::string strip_or_add_prefix;       // "" or "roformer.": what maps a bare RoFormerModel's names to a task model's
};
enum class FreshHead { kForbidden, kAllowed };
WeightMatch match_weights(const RoFormerConfig& config, Head head, const std::vector<NamedShape>& file,
                          FreshHead fresh_head);

}  // namespace rf
