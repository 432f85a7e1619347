// Names, shapes and roles of a RoFormer checkpoint's tensors (spec R-HF-03), described once for every reader and
// writer.
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

// All tensors that transformers 5 writes for this head, in order of the model's definition; bare names (without
// "roformer.") for Head::kNone. The tied decoder tensors (cls.predictions.decoder.*) are not among them when
// tie_word_embeddings is true. When it is false, cls.predictions.bias is stored beside cls.predictions.decoder.bias and
// transformers computes with the latter only.
std::vector<WeightSpec> weight_specs(const ModelConfig& config, Head head);

// The tensor that a tied decoder tensor copies: cls.predictions.decoder.weight ->
// roformer.embeddings.word_embeddings.weight, cls.predictions.decoder.bias -> cls.predictions.bias. Empty for every
// other name.
std::string tied_source(const std::string& name);

// The half-layout sinusoid that encoder.embed_positions.weight [rows, dim] holds (R-ABS-04): row m is sin(m t_0), ...,
// sin(m t_{dim/2-1}), cos(m t_0), ..., with t_i = 10000^(-2i/dim); computed in double, rounded once. dim must be even.
std::vector<float> position_table(int64_t rows, int64_t dim);

// A checkpoint's tensor names sorted out against the model's: which spec each file tensor fills, which specs may be
// left out (the position table), which file tensors are ignored (tied copies, a projection where E == D, a pooler,
// which no head uses, the head of another task when the bare encoder is asked for or a fresh head is allowed). Throws
// Error on a missing or unexpected tensor, and on a wrong shape, with both shapes.
struct NamedShape {
  std::string name;
  std::vector<int64_t> shape;
};
struct WeightMatch {
  std::vector<std::string> load;         // tensors to copy: names of weight_specs
  std::vector<std::string> computed;     // names of weight_specs absent from the file that are computed instead
  std::vector<std::string> tied_copies;  // names in the file: present although tied, must equal their tied_source
  std::vector<std::string> ignored;      // names in the file: present, harmless, not used
  std::vector<std::string> fresh;        // names of weight_specs: the head when it is absent from the file and may be
  std::string strip_or_add_prefix;       // "roformer." when the file is a bare model's and the specs a task model's, or
                                         // the other way round; else ""

  // The name in the file of a tensor of weight_specs.
  std::string file_name(const std::string& spec_name) const;
};
enum class FreshHead { kForbidden, kAllowed };
WeightMatch match_weights(const ModelConfig& config, Head head, const std::vector<NamedShape>& file,
                          FreshHead fresh_head);

}  // namespace rf
