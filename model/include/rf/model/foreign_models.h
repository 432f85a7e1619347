// Decoders of other libraries: their configuration, from config.json of a Hugging Face directory or the keys of a GGUF
// file; load_config() reads their encoders. model/src/families has a file for each family; rotary_report.h describes
// the rotation, with every scaling. Other model types, and quantised weights of Hugging Face but the experts of
// gpt-oss, are refused by name.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rf/io/gguf.h"
#include "rf/model/config.h"

namespace rf {

// The GGUF file of a path: the file itself, or the only GGUF file of a directory without config.json. nullopt for other
// directories.
std::optional<std::string> gguf_path(const std::string& path);
// Whether the path is a GGUF file or a directory with a decoder's model_type.
bool is_foreign_decoder(const std::string& path);

// Reads config.json of a directory. Throws Error, naming file, key and value, for unsupported models.
ModelConfig read_decoder_config(const std::string& model_dir);
// Reads the configuration of a GGUF file.
ModelConfig read_decoder_config(const std::string& path, const io::GgufFile& file);

// Puts the frequencies of the rotation into the options of the position encoding where the directory's tensors have
// them; and the tensors to write again, by name in a model with this head.
void read_stored_frequencies(const std::string& model_dir, ModelConfig& config);
std::vector<std::pair<std::string, std::vector<float>>> stored_frequencies(const ModelConfig& config, Head head);

// load_config(), or the configuration of a decoder.
ModelConfig load_any_config(const std::string& path);

// Throws Error for a model of another library with a part that modules for training do not have, which it names.
void check_has_module(const ModelConfig& config);
// Whether transformers has a class for the model with this head.
bool has_class(const ModelConfig& config, Head head);
// parse_config() of a new model, which gets the vocabulary of its data: vocab_size and pad_token_id may be absent.
ModelConfig parse_new_config(const nlohmann::json& json);
// The new model for a vocabulary, whose padding may decide which rows of positions are read.
ModelConfig with_vocabulary(ModelConfig config, int64_t size, int64_t pad_token_id);
// The same block with separate matrices, as modules for training have them.
BlockSpec apart(BlockSpec block);

// The name of a tensor of weight_specs() in a GGUF file; "" if such files do not have it.
std::string gguf_name(const ModelConfig& config, const std::string& name);

}  // namespace rf
