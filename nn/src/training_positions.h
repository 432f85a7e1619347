// Positions that are drawn for a forward pass in training (TrainingPositions of rf/model/config.h).
#pragma once

#include "rf/model/config.h"
#include "rf/nn/dropout_key.h"
#include "rf/nn/model.h"

namespace rf::nn {

// The input with drawn positions, a draw for each sequence: of each row, or of each run of equal segments. They are a
// function of the given positions and the key, of which a stream is used. Throws Error for positions on several axes,
// and for a sequence with more positions than there are to draw from.
Input with_training_positions(const Input& input, const TrainingPositions& how, DropoutKey& key);

}  // namespace rf::nn
