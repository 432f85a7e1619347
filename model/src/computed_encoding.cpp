// Encodings that are computed (computed_encoding.h): their names, and who reads their keys.
#include "rf/model/computed_encoding.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "rf/io/files.h"
#include "rf/model/linear_attention_config.h"

namespace rf {

namespace {

template <RotaryForm form>
ComputedEncoding rotary(io::StrictObject& options, const ModelConfig& config) {
  return read_rotary(form, options, rotated_dim(config), config.max_position_embeddings);
}

struct Entry {
  const char* type;
  ComputedEncoding (*read)(io::StrictObject& options, const ModelConfig& config);
};
constexpr Entry kEntries[] = {
    {"none", [](io::StrictObject&, const ModelConfig&) -> ComputedEncoding { return NoPosition{}; }},
    {"learned",
     [](io::StrictObject& options, const ModelConfig& config) -> ComputedEncoding {
       return LearnedInput{read_table_positions(options, config.max_position_embeddings)};
     }},
    {"sinusoidal",
     [](io::StrictObject& options, const ModelConfig&) -> ComputedEncoding {
       return SinusoidalInput{read_sinusoid_layout(options)};
     }},
    {"nezha",
     [](io::StrictObject& options, const ModelConfig&) -> ComputedEncoding {
       return NezhaTable{read_nezha_clip(options)};
     }},
    {"rope", rotary<RotaryForm::kRope>},
    {"axial", rotary<RotaryForm::kAxial>},
    {"mrope", rotary<RotaryForm::kMrope>},
    {"xpos", rotary<RotaryForm::kXpos>},
    {"axial-nd", rotary<RotaryForm::kAxialNd>},
    {"log-n", rotary<RotaryForm::kLogN>}};

}  // namespace

std::optional<ComputedEncoding> computed_encoding(const EncodingConfig& encoding, const ModelConfig& config) {
  const Entry* found = std::find_if(std::begin(kEntries), std::end(kEntries),
                                    [&](const Entry& entry) { return entry.type == encoding.type; });
  if (found == std::end(kEntries)) return std::nullopt;
  const nlohmann::json json = io::parse_json(encoding.options, "position_encoding");
  io::StrictObject options(json, "position_encoding", encoding.type);
  ComputedEncoding computed = found->read(options, config);
  options.finish();
  return computed;
}

bool needs_position_terms(const ModelConfig& config) {
  return std::any_of(config.position_encodings.begin(), config.position_encodings.end(), [&](const auto& encoding) {
    const std::optional<ComputedEncoding> computed = computed_encoding(encoding, config);
    if (!computed) return true;
    const auto* rotary = std::get_if<RotarySettings>(&*computed);
    return rotary != nullptr && rotary->spec.precision == RopePrecision::kFloat32 &&
           rotary->trained == TrainedFrequencies::kNone;
  });
}

int64_t read_table_positions(io::StrictObject& options, int64_t max_position_embeddings) {
  return options.integer("max_position_embeddings", max_position_embeddings, 1, int64_t{1} << 24);
}

}  // namespace rf
