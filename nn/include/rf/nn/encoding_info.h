// Descriptions of the encodings for readers, as shown in the tables of the documentation, and their observed behaviour.
// Does not use torch.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace rf::nn {

struct EncodingInfo {
  std::string name;                    // the identifier in config.json, in Python and on the command line
  std::string summary;                 // a line
  std::string equation;                // plain text, in the letters of rf/attention_terms.h
  std::string source;                  // paper and equation
  std::string terms = "-";             // the terms it sets, for example "K, V"
  std::string parameters = "0";        // their number in the letters H, D, C, L, ..
  std::string cost = "0";              // beyond plain attention, per layer, in the letters T, S, H, D
  std::string extrapolates;            // beyond the training length: "yes", "no", or with a reservation
  std::string file = {}, test = {};    // set by the table
  std::vector<std::string> keys = {};  // its configuration keys with defaults, "max_relative_position = 16"
  enum class Needs { kAnyAttention, kCausal } needs = Needs::kAnyAttention;
  // kShift: attention does not change if all positions move by the same amount.
  enum class Invariance { kNone, kShift } invariance = Invariance::kShift;
  // Whether a score needs a term for each pair of tokens, which linear attention does not support.
  enum class Pairwise { kNo, kYes } pairwise = Pairwise::kYes;
};

// In the order of the table.
std::vector<EncodingInfo> encoding_infos();

// The behaviour of an encoding with its default keys, observed in a small model.
struct EncodingBehaviour {
  std::vector<std::string> reads;  // of a layer, besides positions: "tokens", "queries", "keys"
  // The lengths that a model reads: every length; up to the length of position_terms.safetensors (roformer bake writes
  // it for longer sequences); up to max_position_embeddings.
  enum class Lengths { kAll, kStored, kTable } lengths = Lengths::kAll;
  int64_t longest = 0;       // the longest sequence of an encoding with a limit of its own; 0: none
  bool has_file = false;     // a saved model has position_terms.safetensors
  std::string engine_lacks;  // the reason why commands without torch refuse the model; or empty
  bool onnx = true;          // roformer_cpp.export_onnx writes the model
};
EncodingBehaviour encoding_behaviour(const std::string& name);

// The table for programs: for each encoding the strings and keys of EncodingInfo by their names, the truth values
// needs_causal, shift_invariant and pairwise, and its behaviour: reads, lengths ("all", "stored", "table"), longest
// (null or a number of tokens), position_terms, engine, engine_lacks (null or the reason) and onnx. Computed once.
const nlohmann::json& encodings_json();

}  // namespace rf::nn
