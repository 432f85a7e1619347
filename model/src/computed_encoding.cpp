// Computed encodings (computed_encoding.h): their names, and the readers of their keys.
#include "rf/model/computed_encoding.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "rf/io/error.h"
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
     [](io::StrictObject& options, const ModelConfig&) -> ComputedEncoding { return read_sinusoidal(options); }},
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

SinusoidalInput read_sinusoidal(io::StrictObject& options) {
  const SinusoidLayout layout = read_sinusoid_layout(options);
  return {.layout = layout, .scale_embedding = options.boolean("scale_embedding", false)};
}

double word_scale(const ModelConfig& config) {
  int scaling = 0;
  for (const EncodingConfig& encoding : config.position_encodings) {
    const std::optional<ComputedEncoding> computed = computed_encoding(encoding, config);
    const auto* sinusoidal = computed ? std::get_if<SinusoidalInput>(&*computed) : nullptr;
    if (sinusoidal != nullptr && sinusoidal->scale_embedding) ++scaling;
  }
  if (scaling > 1) fail("position_encoding", "word embeddings must be changed by one encoding, got {}", scaling);
  return scaling == 0 ? 1 : std::sqrt(static_cast<double>(config.embedding_size));
}

void check_no_log_n(const ModelConfig& config) {
  for (const EncodingConfig& encoding : config.position_encodings) {
    const std::optional<ComputedEncoding> computed = computed_encoding(encoding, config);
    const auto* rotary = computed ? std::get_if<RotarySettings>(&*computed) : nullptr;
    if (rotary == nullptr || rotary->log_n == LogN::kNone) continue;
    fail("linear_attention",
         "position_encoding must not scale scores by log n, since linear attention has none, got {}",
         rotary->form == RotaryForm::kLogN ? "log-n" : encoding.type + " with log_n");
  }
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
