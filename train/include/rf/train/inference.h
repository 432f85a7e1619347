// One function for each command that runs a trained model. Free of torch.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace rf::train {

// The directory to open a model from: `dir`, or if that is a pretraining run that has not finished, its newest
// checkpoint, with a message to `note`. Throws Error for a run without a checkpoint.
std::string model_of_run(const std::string& dir, const std::function<void(const std::string&)>& note);

struct ForwardOptions {
  std::string model_dir;
  std::string ids_path;           // .npy, integers [B,T]
  std::string mask_path;          // optional .npy [B,T]
  std::string types_path;         // optional .npy [B,T]
  std::string output_path;        // .npy: logits, or the hidden states of a model without a head; QA: [2,B,T]
  std::string dtype = "float32";  // or "float64"
};
struct ForwardReport {
  std::string architecture;
  std::vector<int64_t> shape;
};
ForwardReport forward(const ForwardOptions& options);

struct MaskPrediction {
  int64_t token_index;  // in the encoded text
  std::string token;
  int64_t id;
  double probability;
};
// Predictions for each [MASK] of a text, best first: [mask][k].
std::vector<std::vector<MaskPrediction>> fill_mask(const std::string& model_dir, const std::string& text,
                                                   int64_t top_k);

}  // namespace rf::train
