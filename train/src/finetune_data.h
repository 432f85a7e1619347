// Records of fine-tuning: held-out parts, checks of files against each other, and batches.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rf/tasks/examples.h"

namespace rf::train {

// Removes `fraction` of the records, drawn with the seed, and returns them in their order; at least one is removed and
// one is left. Throws Error if there are fewer than two.
std::vector<data::Record> take_fraction(std::vector<data::Record>& records, double fraction, uint64_t seed);

// The number of records that have the inputs of a training record.
int64_t count_shared(const std::vector<data::Record>& train, const std::vector<data::Record>& records,
                     const tasks::TaskKind& kind, const tasks::TaskSettings& settings);
// A warning for each class with only one training example, with its file and line.
std::vector<std::string> single_example_classes(const tasks::Split& train, const tasks::TaskSettings& settings);
// A hash of every field of the records.
std::string records_identity(const std::vector<data::Record>& records);

// Batches of examples with similar lengths, as indices of examples, each once: a pool of 50 batches is drawn by (seed,
// epoch) and divided by length, and the order of the batches is drawn again.
std::vector<std::vector<size_t>> epoch_batches(const std::vector<tasks::Example>& examples, int64_t batch,
                                               uint64_t seed, int64_t epoch);

}  // namespace rf::train
