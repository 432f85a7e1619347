// Writes position_terms.safetensors (rf/model/position_terms.h) next to the weights of a model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rf/model/position_terms.h"
#include "rf/nn/model.h"
#include "rf/nn/translation_model.h"

namespace rf::nn {

struct SavedTerms {
  // The longest sequence that the file serves; kAllTokens: every length that the encoding reads.
  int64_t tokens = kAllTokens;
  int64_t longest = kAllTokens;  // the longest sequence that the encoding reads; kAllTokens: any
  int64_t bytes = 0;
};

// Writes the terms of `model`, whose weights and configuration are in model_dir. Returns nullopt in two cases: if the
// engine does not need terms (needs_position_terms), it removes the file; if a term is not a constant of the checkpoint
// (numbers per token, kappa and P, or rotations that the engine does not compute), it writes only the term's name, by
// which the engine refuses the model. Tables of limited length are written completely, other tables for sequences of
// `tokens`. Absent: max_position_embeddings and at least 2048, or as many as fit into 256 MiB. Throws Error for more
// tokens than the encoding reads, or than fit into 4 GiB.
std::optional<SavedTerms> save_position_terms(const Model& model, const std::string& model_dir,
                                              std::optional<int64_t> tokens = std::nullopt);
// The same for an encoder-decoder, which has a file for each side.
std::optional<SavedTerms> save_position_terms(const TranslationModel& model, const std::string& model_dir,
                                              std::optional<int64_t> tokens = std::nullopt);
// The same for the model of a directory. Throws Error with the term's name if a term is not constant.
std::optional<SavedTerms> save_position_terms(const std::string& model_dir, std::optional<int64_t> tokens);

// The terms of a model that a program without torch can use, as in the file, or the first term that such a file cannot
// hold.
struct ServedTerms {
  std::string lacking;                  // the first term that a file cannot hold; then `layers` is empty
  std::vector<ops::Terms> layers = {};  // for the longest sequence that they support
  int64_t tokens = 0, longest = 0;      // as in SavedTerms
};

// Whether the encoding reads sequences of that many tokens.
bool reads_length(const Encoding& encoding, int64_t tokens);
// The longest sequence that the encoding reads; kAllTokens: any.
int64_t longest_length(const Encoding& encoding);

// asked: as `tokens` of save_position_terms().
ServedTerms served_terms(const Model& model, std::optional<int64_t> asked);

// Removes the files of a model or an encoder-decoder.
void remove_position_terms(const std::string& model_dir);

}  // namespace rf::nn
