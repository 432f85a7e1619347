// Converts a model to another vocabulary; new tokens are made from the model's old tokens (WoBERT's rule, spec
// R-TOK-06).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rf::train {

// Reads the model in model_dir and writes config.json and model.safetensors to output_dir. The embedding of new token i
// and its part of the output layer are means over the old tokens sources[i]; everything else is unchanged. Throws Error
// if sources name a token that the model does not have, are empty, or leave out its padding token.
void change_vocabulary(const std::string& model_dir, const std::vector<std::vector<int32_t>>& sources,
                       const std::string& output_dir);

}  // namespace rf::train
