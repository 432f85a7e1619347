// The JSON lines of roformer embed.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rf/engine/embedder.h"
#include "rf/engine/quantization.h"

namespace rf::cli {

class VectorLines {
 public:
  struct Options {
    bool token_names = false;                         // of sparse vectors, in place of indices
    bool dense = true, sparse = true, tokens = true;  // computed kinds to write
    engine::Quantization quantization = engine::Quantization::kNone;
    engine::ElementRanges ranges{};  // of int8 and uint8
  };
  VectorLines(const engine::Embedder& embedder, const Options& options);

  // The line of a text: {"index":0,"id":7,"embedding":[...]}, with the shortest decimal numbers that are
  // read as the same floats; "embeddings" of vectors of tokens; "indices" or "tokens", and "values", of sparse ones.
  // start: the first keys, "\"index\":0". id: JSON text; if empty, the key is omitted.
  std::string line(std::string_view start, std::string_view id, const engine::TextVectors& vectors) const;

 private:
  std::string sparse(const engine::SparseVector& vector) const;
  std::string tokens(const std::vector<float>& vectors) const;
  std::string quantized(std::span<const float> vector) const;

  const engine::Embedder& embedder_;
  Options options_;
  engine::Quantizer quantizer_;
};

}  // namespace rf::cli
