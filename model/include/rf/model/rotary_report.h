// What `roformer doctor` reports of a model: which rotation its files describe, what in them contradicts itself or the
// weights, and how wrong angles are that are formed in float32. Reads what transformers (4 and 5) and llama.cpp's
// converter write; the model need not be one that this program runs.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "rf/model/rotary_rows.h"

namespace rf {

// problem: programs that follow transformers refuse the model, compute something else than its author meant, or
// disagree with each other. note: what is worth knowing and may be meant.
enum class Severity { kNote, kProblem };
const char* name(Severity severity);

struct Finding {
  Severity severity;
  std::string rule;  // for programs: stays the same from version to version
  std::string text;  // a sentence
};

// The greatest difference of a cosine or sine from the exact one. Above position 65519 float16 has infinity, for which
// the error is 2, the greatest there is.
struct AngleError {
  double error = 0;
  int64_t position = 0, pair = 0;
};

// The rotation of some or all layers.
struct Rotation {
  std::string layers = "all";          // or a layer type: full_attention, sliding_attention
  std::optional<RotaryLayout> layout;  // nullopt: not known
  double base = 0;
  std::string scaling = "default";  // the type as its file names it
  std::optional<RopeSpec> spec;     // nullopt where a finding says why it cannot be computed
  std::vector<double> frequencies;  // [R/2] radians per position, within the training length
  // The frequencies of the longest sequence, where it has others.
  std::vector<double> longest_frequencies;
  // Among the last positions of the longest sequence: float32(position) * float32(frequency), and positions that were
  // rounded before the product.
  std::optional<AngleError> float32_angles, bfloat16_positions, float16_positions;
};

struct RotaryReport {
  std::string path;        // the file that was read
  std::string format;      // config.json or GGUF
  std::string model_type;  // general.architecture of a GGUF file; "" where there is none
  int64_t version = 0;     // of config.json's keys, 4 or 5; of the GGUF format; 0: the file does not show it
  std::string dtype;       // "" where the file has none
  // 0 where the file does not say.
  int64_t layers = 0, heads = 0, kv_heads = 0, head_size = 0, length = 0;
  int64_t tensors = -1;  // -1: there are no weights
  std::vector<Rotation> rotations;
  std::vector<int64_t> unrotated_layers;
  std::vector<Finding> findings;
};

// path: a directory with config.json, with or without model.safetensors or its shards; a directory with one .gguf file;
// or a .gguf file. Throws Error for what cannot be read, values of a wrong type or out of range, and a model that does
// not rotate.
RotaryReport rotary_report(const std::string& path);

// An object with the fields of the report; numbers that are not known are null.
nlohmann::json to_json(const RotaryReport& report);

// The model types that rotary_report knows: objects with model_type, pairing, base, and what the rotary size is.
nlohmann::json rotary_model_types();

}  // namespace rf
