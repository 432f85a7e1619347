// The table of experiments: one line each, in the order in which "all" runs them. The numeric ones take seconds; the
// trained ones share their runs, so those that train models come before those that read them.
#include <algorithm>

#include "experiment.h"

#define RF_EXPERIMENTS(X)  \
  X(permutation)           \
  X(relative_score)        \
  X(any_position)          \
  X(norm)                  \
  X(bilinear)              \
  X(sinusoid)              \
  X(linear_attention)      \
  X(pairwise)              \
  X(decay)                 \
  X(score_by_distance)     \
  X(random_features)       \
  X(rotation_cost)         \
  X(attention_time)        \
  X(chinese_tokens)        \
  X(convergence)           \
  X(word_position)         \
  X(trained_scores)        \
  X(trained_frequencies)   \
  X(encodings)             \
  X(linear_language_model) \
  X(extrapolation)         \
  X(synthetic)             \
  X(atlas)                 \
  X(staged_pretraining)    \
  X(chinese_models)        \
  X(long_texts)            \
  X(fine_tuning)           \
  X(real_weights)          \
  X(similar_texts)         \
  X(translation)

namespace rf::reproduce {

#define DECLARE(name) Experiment name();
#define CALL(name) name(),
RF_EXPERIMENTS(DECLARE)

const std::vector<Experiment>& table() {
  static const std::vector<Experiment> kTable = {RF_EXPERIMENTS(CALL)};
  return kTable;
}

void add_files(Files& files, const Files& more) {
  for (const std::string& file : more) {
    if (std::find(files.begin(), files.end(), file) == files.end()) files.push_back(file);
  }
}

Seeds seeds_of(Scale scale) {
  return scale == Scale::kTiny ? Seeds{1} : Seeds{1, 2, 3};
}

}  // namespace rf::reproduce
