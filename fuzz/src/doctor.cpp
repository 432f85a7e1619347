// Inputs of `roformer doctor`: a model directory of any model type, or a GGUF file.
#include <nlohmann/json.hpp>

#include "memory_directory.h"
#include "rf/io/error.h"
#include "rf/model/rotary_report.h"
#include "target_functions.h"

namespace rf::fuzz {

void doctor(std::string_view bytes) {
  static const MemoryDirectory directory;
  const bool is_gguf = bytes.starts_with("GGUF");
  directory.put("model.gguf", is_gguf ? bytes : std::string_view());
  directory.put("config.json", is_gguf ? std::string_view() : take_section(bytes));
  directory.put("model.safetensors", is_gguf ? std::string_view() : bytes);
  try {
    const RotaryReport report = rotary_report(directory.path());
    check(!report.rotations.empty());
    for (const Rotation& rotation : report.rotations) {
      check(!rotation.spec || std::ssize(rotation.frequencies) == rotation.spec->rotary_dim / 2);
      check(!rotation.float32_angles || rotation.float32_angles->error >= 0);
    }
    check(!to_json(report).dump().empty());
  } catch (const Error&) {
  }
}

}  // namespace rf::fuzz
