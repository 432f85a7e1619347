// Keys and values of a prompt in a safetensors file: "ids" [tokens], and for each layer and head "L.H.keys" and
// "L.H.values" [tokens, row], of the cache's dtype; rows of int8 end with the 4 bytes of their scale. Its metadata say
// the origin of the bits (PromptFacts) and have a hash of the data.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "rf/io/safetensors.h"
#include "sequence_cache.h"

namespace rf::engine {

using PromptFacts = std::map<std::string, std::string>;

class PromptFile {
 public:
  // Throws Error for a damaged file, other facts, and another shape than the cache's.
  PromptFile(const std::string& path, const PromptFacts& facts, const KeyValueCache& cache, int64_t vocab_size);

  std::span<const int32_t> ids() const { return ids_; }
  // Sequence 0 of a cache, which is empty, becomes the first tokens of the file.
  void copy_to(KeyValueCache& cache, int64_t tokens) const;

 private:
  io::SafetensorsFile file_;
  std::vector<int32_t> ids_;
};

// The first tokens of sequence 0.
void write_prompt_file(const std::string& path, const PromptFacts& facts, const KeyValueCache& cache, int64_t tokens);

}  // namespace rf::engine
