// Checks of what a caller gives to a model.
#pragma once

#include "rf/model/config.h"
#include "rf/nn/model.h"

namespace rf::nn {

// Throws Error: shapes, dtypes, ids, types and masks out of range (with the value and its place), no token, negative
// positions, segments together with a mask, encoder states without cross-attention or the other way round, a cache in a
// model that is not causal or of another batch or model. dtype: of keys and values.
void check_input(const Input& input, const ModelConfig& config, at::ScalarType dtype, const KeyValueCache* cache);

}  // namespace rf::nn
