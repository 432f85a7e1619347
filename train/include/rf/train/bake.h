// roformer bake: the terms of a model's position encoding, written for the engine.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace rf::train {

// Writes position_terms.safetensors (rf/model/position_terms.h) into a model directory, for sequences of `length`
// tokens if tables are unbounded; absent: the length that save_model uses. Returns the output of the command. Throws
// Error for a model that cannot be opened, and for a length that the encoding cannot read or that needs too much
// memory.
nlohmann::json bake(const std::string& model_dir, std::optional<int64_t> length);

}  // namespace rf::train
