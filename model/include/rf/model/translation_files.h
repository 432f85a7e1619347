// The tensors of an encoder-decoder's directory (rf/model/translation_config.h). Marian's files may contain copies of
// the shared embedding and its table of sinusoids; these must equal the originals.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "rf/model/checkpoint_files.h"
#include "rf/model/translation_config.h"

namespace rf {

using TensorMap = std::map<std::string, const io::TensorView*>;

// Whether the tensors of position encodings must be among the specs.
enum class EncodingTensors { kAny, kOfSpecs };

// The tensors of `specs` by name, without buffers that the files lack. Throws Error for a missing tensor, a wrong
// shape, an unknown name, and copies with other values.
TensorMap translation_tensors(const CheckpointFiles& files, const ModelConfig& config,
                              const std::vector<WeightSpec>& specs, EncodingTensors encodings);

// The tensors of a side's body and of its encoding, by the names that a ModelConfig gives them.
TensorMap side_tensors(const CheckpointFiles& files, const ModelConfig& config, TranslationSide side);

// Whether config.json says rf_translation, the encoder-decoders that may need position terms.
bool is_own_translation(const std::string& model_dir);
// Each side has a file of position terms (rf/model/position_terms.h), for its side_tensors().
std::string side_terms_file(TranslationSide side);

}  // namespace rf
