// The cost of pretraining runs (cost_estimate.h).
#include "cost_estimate.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "timing.h"

namespace rf::reproduce {

namespace {

constexpr int64_t kByteVocabulary = 256, kFileVocabulary = 30000;

double vocabulary_of(const nlohmann::json& corpus) {
  const nlohmann::json& tokens = corpus.at("tokens");
  if (tokens.is_number()) return tokens.get<double>();
  return tokens == "bytes" ? kByteVocabulary : kFileVocabulary;
}

double run_operations(const nlohmann::json& run, double vocabulary) {
  const nlohmann::json& model = run.at("model");
  const auto size = [&](const char* key, double otherwise) { return model.value(key, otherwise); };
  const double width = size("hidden_size", 768), layers = size("num_hidden_layers", 12);
  const double weights = layers * (4 * width * width + 2 * width * size("intermediate_size", 3072));
  const bool is_causal = run.value("objective", "masked") == "causal";
  const double predicted = is_causal ? 1 : run.value("mask", nlohmann::json::object()).value("probability", 0.15);
  double operations = 0;
  for (const nlohmann::json& stage : run.at("stages")) {
    const double length = stage.at("max_length"),
                 tokens = length * stage.at("batch").get<double>() * stage.at("steps").get<double>();
    operations += tokens * (6 * weights + 12 * layers * width * length + 6 * predicted * vocabulary * width);
  }
  return operations;
}

double design_operations(const nlohmann::json& design) {
  const double vocabulary = vocabulary_of(design.at("corpus")), seeds = static_cast<double>(design.at("seeds").size());
  double operations = 0;
  if (design.contains("run_files")) {
    for (const auto& [arm, run] : design.at("run_files").items()) operations += seeds * run_operations(run, vocabulary);
    return operations;
  }
  return seeds * static_cast<double>(design.at("arms").size()) * run_operations(design.at("run"), vocabulary);
}

// Of an encoder-decoder; texts and their translations are taken to be as long as a batch may be, and attention's own
// products are left out.
double translation_operations(const nlohmann::json& settings) {
  const nlohmann::json &run = settings.at("run"), &model = run.at("model");
  const auto number = [](const nlohmann::json& object, const char* key) { return object.at(key).get<double>(); };
  const double width = number(model, "d_model");
  const double encoder =
      number(model, "encoder_layers") * (4 * width * width + 2 * width * number(model, "encoder_ffn_dim"));
  const double decoder =
      number(model, "decoder_layers") * (8 * width * width + 2 * width * number(model, "decoder_ffn_dim"));
  const double tokens = number(run, "steps") * number(run, "max_tokens") * number(run, "accumulate");
  const auto arms = static_cast<double>(settings.at("encodings").size() * settings.at("seeds").size());
  return arms * 6 * tokens * (encoder + decoder + width * number(settings, "vocabulary"));
}

// Operations per second of products of bfloat16 matrices, in which training computes.
double matrix_rate() {
  constexpr int64_t kSize = 1024;
  const at::Tensor a = at::randn({kSize, kSize}).to(at::kBFloat16), b = a.t().contiguous();
  const double seconds = median_seconds({[&] { at::matmul(a, b); }}, 3, 0.3).front();
  return 2.0 * kSize * kSize * kSize / seconds;
}

std::string duration(double seconds) {
  constexpr double kHour = 3600, kDay = 24 * kHour;
  if (seconds < kHour) return fmt::format("{:.0f} minutes", seconds / 60);
  return seconds < 3 * kDay ? fmt::format("{:.1f} hours", seconds / kHour) : fmt::format("{:.0f} days", seconds / kDay);
}

}  // namespace

double pretraining_operations(const nlohmann::json& settings) {
  double operations = 0;
  if (settings.contains("design")) operations += design_operations(settings.at("design"));
  if (settings.contains("designs")) {
    for (const auto& [name, design] : settings.at("designs").items()) operations += design_operations(design);
  }
  if (settings.contains("vocabulary")) operations += translation_operations(settings);
  return operations;
}

std::string cost_text(const nlohmann::json& settings) {
  const double operations = pretraining_operations(settings);
  if (operations == 0) return "";
  const double rate = matrix_rate();
  return fmt::format(
      "training costs about {:.1e} floating-point operations if no model is there yet, those of other experiments that "
      "this one reads included: at least {} on this machine, which multiplies matrices with {:.1e} per second; "
      "fine-tuning is not counted",
      operations, duration(operations / rate), rate);
}

}  // namespace rf::reproduce
