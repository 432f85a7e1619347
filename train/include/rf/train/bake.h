// roformer bake: the terms of a model's position encoding, written for the engine.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace rf::train {

// Writes position_terms.safetensors (rf/model/position_terms.h) into a model directory, for sequences of `length`
// tokens where the rows of tables never end; absent: as many as save_model writes. Returns what the command prints.
// Throws Error for a model that cannot be opened, and for a length that the encoding does not read or that needs too
// much.
nlohmann::json bake(const std::string& model_dir, std::optional<int64_t> length);

}  // namespace rf::train
