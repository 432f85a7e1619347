// Checks the inputs of a model.
#pragma once

#include "rf/model/config.h"
#include "rf/nn/model.h"

namespace rf::nn {

// Throws Error for wrong shapes and dtypes; ids, types and masks out of range (with the value and its place); empty
// input; negative positions; segments together with a mask; encoder states without cross-attention or the reverse; a
// cache in a model that is not causal, or from another batch or model. dtype: of keys and values.
void check_input(const Input& input, const ModelConfig& config, at::ScalarType dtype, const KeyValueCache* cache);

}  // namespace rf::nn
