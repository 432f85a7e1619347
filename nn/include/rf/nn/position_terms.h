// Writes position_terms.safetensors (rf/model/position_terms.h) beside the weights of a model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "rf/nn/model.h"

namespace rf::nn {

struct SavedTerms {
  int64_t tokens = 0;   // the longest sequence that the file serves; kAllTokens: every one that the encoding reads
  int64_t longest = 0;  // the longest sequence that the encoding reads; kAllTokens: any
  int64_t bytes = 0;
};

// Writes the terms of `model`, whose weights and configuration are in model_dir. Returns nullopt where the engine needs
// none (needs_position_terms), and removes the file; and where a term is no constant of the checkpoint, numbers of
// tokens (kappa, P) or rotations that the engine does not compute, and writes the term's name alone, by which the
// engine refuses the model. Where the rows of tables end, all are written. Otherwise they are for sequences of
// `tokens`; absent: of max_position_embeddings and at least 2048, or of as many as fit into 256 MiB. Throws Error for
// tokens beyond what the encoding reads, and beyond what 4 GiB hold.
std::optional<SavedTerms> save_position_terms(const Model& model, const std::string& model_dir,
                                              std::optional<int64_t> tokens = std::nullopt);
// The same for the model of a directory. Throws Error, which names the term, where one is no constant.
std::optional<SavedTerms> save_position_terms(const std::string& model_dir, std::optional<int64_t> tokens);

void remove_position_terms(const std::string& model_dir);

}  // namespace rf::nn
