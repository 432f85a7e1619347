// The report of `roformer doctor` on a model: the rotation that its files describe, contradictions in the files or with
// the weights, and the error of angles computed in float32. Reads files of transformers (4 and 5) and of llama.cpp's
// converter, also for models that this program cannot run.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "rf/model/rotary_rows.h"

namespace rf {

// problem: programs that follow transformers refuse the model, compute a different result than its author intended, or
// disagree with each other. note: worth knowing, and possibly intended.
enum class Severity { kNote, kProblem };
const char* name(Severity severity);

struct Finding {
  Severity severity;
  std::string rule;  // stable across versions, for programs
  std::string text;  // a sentence
};

// The largest difference of a cosine or sine from the exact one. Positions above 65519 are infinite in float16, with
// error 2, the maximum.
struct AngleError {
  double error = 0;
  int64_t position = 0, pair = 0;
};

// The rotation of some or all layers.
struct Rotation {
  std::string layers = "all";          // or a layer type: full_attention, sliding_attention
  std::optional<RotaryLayout> layout;  // nullopt: unknown
  double base = 0;
  std::string scaling = "default";  // the type as its file names it
  std::optional<RopeSpec> spec;     // nullopt if it cannot be computed; a finding says why
  std::string parameters;           // JSON: rope_parameters that read_rope_spec() reads as the spec
  std::vector<double> frequencies;  // [R/2] radians per position, within the training length
  // The frequencies of the longest sequence, if they differ.
  std::vector<double> longest_frequencies;
  // For the last positions of the longest sequence: errors of float32(position) * float32(frequency), and of positions
  // rounded before the product.
  std::optional<AngleError> float32_angles, bfloat16_positions, float16_positions;
};

struct RotaryReport {
  std::string path;        // the file that was read
  std::string format;      // config.json or GGUF
  std::string model_type;  // general.architecture of a GGUF file; "" if missing
  std::string part;        // the object of config.json that describes it: "text_config"; "" for all of it
  int64_t version = 0;     // of config.json's keys, 4 or 5, or of the GGUF format; 0: unknown
  std::string dtype;       // "" if the file does not specify it
  // 0 if the file does not specify it.
  int64_t layers = 0, heads = 0, kv_heads = 0, head_size = 0, length = 0;
  int64_t tensors = -1;  // -1: without weights
  std::vector<Rotation> rotations;
  std::vector<int64_t> unrotated_layers;
  std::vector<Finding> findings;
};

// path: a directory with config.json, with or without model.safetensors or its shards; a directory with one .gguf file;
// or a .gguf file. Throws Error for unreadable files, values of a wrong type or out of range, and a model without
// rotation.
RotaryReport rotary_report(const std::string& path);

// An object with the fields of the report; unknown numbers are null.
nlohmann::json to_json(const RotaryReport& report);

// The model types that rotary_report supports: objects with model_type, pairing, base, and the definition of the rotary
// size.
nlohmann::json rotary_model_types();

}  // namespace rf
