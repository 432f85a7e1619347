// What the cosines of a model's vectors say of pairs whose similarity people have judged.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rf/data/records.h"

namespace rf::reproduce {

struct JudgedPair {
  std::string text, pair;
  double label = 0;
};
// Records with the fields text, pair and label, or those that stand for them. Throws Error as RecordReader does.
struct PairFields {
  std::string text = "text", pair = "pair", label = "label";
};
std::vector<JudgedPair> judged_pairs(const data::RecordOptions& file, const PairFields& fields = {});

// The vector of a text, which stands between [CLS] and [SEP].
enum class SentenceVector { kFirstToken, kMeanOfTokens, kPooler, kTokenCounts };

// Spearman's rank correlation of cosines with labels. kPooler: of a model of train-similar; kTokenCounts: how often
// each token of the vocabulary is in the text, without the model. Texts are cut after max_length tokens.
double correlation_of_cosines(const std::string& model_dir, SentenceVector vector, const std::vector<JudgedPair>& pairs,
                              int64_t max_length);

}  // namespace rf::reproduce
