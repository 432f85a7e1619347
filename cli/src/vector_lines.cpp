// The JSON lines of roformer embed (vector_lines.h).
#include "vector_lines.h"

#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>
#include <vector>

#include "rf/io/json_field.h"

namespace rf::cli {

VectorLines::VectorLines(const engine::Embedder& embedder, const Options& options)
    : embedder_(embedder), options_(options), quantizer_(options.quantization, options.ranges) {}

std::string VectorLines::line(std::string_view start, std::string_view id, const engine::TextVectors& vectors) const {
  std::string line = fmt::format("{{{}", start);
  if (!id.empty()) fmt::format_to(std::back_inserter(line), ",\"id\":{}", id);
  const engine::EmbedderInfo& info = embedder_.info();
  if (options_.dense && (info.vectors == engine::VectorKind::kDense || info.vectors == engine::VectorKind::kAll)) {
    const bool is_quantized = options_.quantization != engine::Quantization::kNone;
    line += ",\"embedding\":" + (is_quantized ? quantized(vectors.dense) : io::json_list(vectors.dense));
  }
  if (options_.sparse && info.sparse_dimensions > 0) line += sparse(vectors.sparse);
  if (options_.tokens && info.token_dimensions > 0) line += ",\"embeddings\":" + tokens(vectors.tokens);
  return line + "}";
}

std::string VectorLines::sparse(const engine::SparseVector& vector) const {
  std::string text;
  if (options_.token_names) {
    nlohmann::json names = nlohmann::json::array();
    for (const int32_t index : vector.indices) {
      const std::optional<std::string> name = embedder_.token(index);
      names.push_back(name ? nlohmann::json(*name) : nlohmann::json());
    }
    text = ",\"tokens\":" + names.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  } else {
    text = ",\"indices\":" + io::json_list(vector.indices);
  }
  return text + ",\"values\":" + io::json_list(vector.values);
}

std::string VectorLines::tokens(const std::vector<float>& vectors) const {
  const auto dimensions = static_cast<size_t>(embedder_.info().token_dimensions);
  std::string text = "[";
  for (size_t begin = 0; begin < vectors.size(); begin += dimensions) {
    if (text.size() > 1) text += ',';
    text += io::json_list(std::span(vectors).subspan(begin, dimensions));
  }
  return text += ']';
}

std::string VectorLines::quantized(std::span<const float> vector) const {
  const engine::Quantization kind = options_.quantization;
  std::vector<std::byte> bytes(static_cast<size_t>(engine::quantized_size(kind, std::ssize(vector))));
  quantizer_(vector, bytes.data());
  std::vector<int> numbers;
  for (const std::byte each : bytes) {
    const auto level = static_cast<uint8_t>(each);
    numbers.push_back(engine::is_signed(kind) ? static_cast<int8_t>(level) : level);
  }
  return io::json_list(numbers);
}

}  // namespace rf::cli
