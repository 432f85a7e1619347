// Draws the positions of a forward pass in training (TrainingPositions of rf/model/config.h).
#pragma once

#include "rf/model/config.h"
#include "rf/nn/dropout_key.h"
#include "rf/nn/model.h"

namespace rf::nn {

// Returns the input with drawn positions, one draw per sequence: a row, or a run of equal segments. They depend on the
// given positions and on one stream of the key. Throws Error for positions on several axes, and for a sequence with
// more positions than there are to draw from.
Input with_training_positions(const Input& input, const TrainingPositions& how, DropoutKey& key);

}  // namespace rf::nn
