// Commands on model directories: add-words converts a model to another vocabulary, bake writes the terms of its
// position encoding for the engine.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace rf::train {

// New tokens are made from the model's old tokens (WoBERT's rule, spec R-TOK-06). Reads the model in model_dir and
// writes config.json and model.safetensors to output_dir. The embedding of new token i and its part of the output layer
// are means over the old tokens sources[i]; everything else is unchanged. Throws Error if sources name a token that the
// model does not have, are empty, or leave out its padding token.
void change_vocabulary(const std::string& model_dir, const std::vector<std::vector<int32_t>>& sources,
                       const std::string& output_dir);

// Writes position_terms.safetensors (rf/model/position_terms.h) into a model directory, for sequences of `length`
// tokens if tables are unbounded; absent: the length that save_model uses. Returns the output of the command. Throws
// Error for a model that cannot be opened, and for a length that the encoding cannot read or that needs too much
// memory.
nlohmann::json bake(const std::string& model_dir, std::optional<int64_t> length);

}  // namespace rf::train
