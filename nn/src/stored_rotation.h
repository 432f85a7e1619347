// Rotation by a checkpoint's stored sin|cos table if it differs from the computed one (for example,
// encoder.embed_positions.weight rounded to 16 bits), as in transformers. A position beyond its rows is an error.
#pragma once

#include <memory>

#include "rf/nn/encoding.h"

namespace rf::nn {

// table_MD: [rows, D], sin in the first half of a row and cos in the second.
std::shared_ptr<Encoding> make_stored_rotation(const at::Tensor& table_MD);

}  // namespace rf::nn
