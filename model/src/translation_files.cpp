// Finding and checking the tensors of an encoder-decoder (translation_files.h).
#include "rf/model/translation_files.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/half.h"
#include "rf/io/printable.h"
#include "rf/model/position_terms.h"
#include "rf/model/rotary_rows.h"

namespace rf {
namespace {

constexpr std::array kEmbeddingNames = {kSharedEmbedding, "model.encoder.embed_tokens.weight",
                                        "model.decoder.embed_tokens.weight", "lm_head.weight"};
constexpr std::array kSinusoidNames = {"model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"};
constexpr double kLargestSinusoidDifference = 1e-6;

bool same(const io::TensorView& a, const io::TensorView& b) {
  return a.dtype == b.dtype && a.shape == b.shape && std::ranges::equal(a.data, b.data);
}

// The first name of the shared embedding in a file.
std::string name_of_embedding(const CheckpointFiles& files) {
  const auto* const found =
      std::ranges::find_if(kEmbeddingNames, [&](const char* name) { return files.tensors().contains(name); });
  if (found == kEmbeddingNames.end())
    fail("load_model", "{} must be in the file, got no tensor of this name", kSharedEmbedding);
  return *found;
}

// All copies of the shared embedding must be equal.
void check_copies(const CheckpointFiles& files, const std::string& embedding) {
  for (const char* name : kEmbeddingNames) {
    if (name == embedding || !files.tensors().contains(name) || same(files.at(embedding), files.at(name))) continue;
    fail("load_model", "{} must equal {}, since source, target and output share one matrix, got other values", name,
         embedding);
  }
}

bool holds_sinusoids(const io::TensorView& view, int64_t width) {
  if (view.shape.size() != 2 || view.shape[1] != width || !io::is_floating(view.dtype)) return false;
  std::vector<int64_t> positions(static_cast<size_t>(view.shape[0]));
  std::iota(positions.begin(), positions.end(), 0);
  const auto count = static_cast<int64_t>(positions.size()) * width;
  std::vector<double> computed(static_cast<size_t>(count));
  std::vector<float> stored(computed.size());
  sinusoid(positions.data(), std::ssize(positions), width, SinusoidLayout::kHalf, computed.data());
  io::read_floats(view.dtype, view.data.data(), count, stored.data());
  return std::ranges::equal(stored, computed,
                            [](float a, double b) { return std::abs(a - b) <= kLargestSinusoidDifference; });
}

void check_sinusoids(const CheckpointFiles& files, const ModelConfig& config) {
  for (const char* name : kSinusoidNames) {
    const auto found = files.tensors().find(name);
    if (found == files.tensors().end()) continue;
    if (model_type(config) != "marian" || !holds_sinusoids(*found->second, config.hidden_size))
      fail("load_model", "{} must be the sinusoids of Marian, got other values", name);
  }
}

const char* name_of_side(TranslationSide side) { return side == TranslationSide::kDecoder ? "decoder" : "encoder"; }

}  // namespace

TensorMap translation_tensors(const CheckpointFiles& files, const ModelConfig& config,
                              const std::vector<WeightSpec>& specs, EncodingTensors encodings) {
  const std::string type = model_type(config), embedding = name_of_embedding(files);
  check_copies(files, embedding);
  TensorMap tensors;
  std::set<std::string> known(kEmbeddingNames.begin(), kEmbeddingNames.end());
  known.insert(kSinusoidNames.begin(), kSinusoidNames.end());
  for (const WeightSpec& spec : specs) {
    known.insert(spec.name);
    const auto found = files.tensors().find(spec.name == kSharedEmbedding ? embedding : spec.name);
    if (found == files.tensors().end()) {
      if (spec.role == WeightRole::kBuffer) continue;
      fail("weights", "all tensors of a {} must be in the file, got no {}", type, spec.name);
    }
    const io::TensorView& view = *found->second;
    if (view.shape != spec.shape) {
      fail("weights", "{} must have the shape [{}] by the config, got [{}]", io::printable(view.name),
           fmt::join(spec.shape, ", "), fmt::join(view.shape, ", "));
    }
    tensors.emplace(spec.name, &view);
  }
  check_sinusoids(files, config);
  for (const auto& [name, view] : files.tensors()) {
    const bool is_of_encoding = encodings == EncodingTensors::kAny && name.starts_with(kEncodingPrefix);
    if (!is_of_encoding && !known.contains(name))
      fail("weights", "tensors must be those of a {}, got {}", type, io::printable(name));
  }
  return tensors;
}

TensorMap side_tensors(const CheckpointFiles& files, const ModelConfig& config, TranslationSide side) {
  const std::string embedding = name_of_embedding(files);
  TensorMap tensors;
  for (const BodyName& each : body_names(config, side))
    tensors.emplace(each.in_body, &files.at(each.in_file == kSharedEmbedding ? embedding : each.in_file));
  const std::string prefix = fmt::format("{}{}.", kEncodingPrefix, name_of_side(side));
  for (const auto& [name, view] : files.tensors()) {
    if (name.starts_with(prefix)) tensors.emplace(kEncodingPrefix + name.substr(prefix.size()), view);
  }
  return tensors;
}

bool is_own_translation(const std::string& model_dir) {
  const std::string path = model_dir + "/config.json";
  if (!io::has_file(path)) return false;
  const nlohmann::json config = io::read_json(path);
  return config.is_object() && config.value("model_type", nlohmann::json()) == "rf_translation";
}

std::string side_terms_file(TranslationSide side) {
  return fmt::format("{}_{}", name_of_side(side), kPositionTermsFile);
}

}  // namespace rf
