// Computes the vectors of a reader's texts, in order: one thread reads and tokenizes, a queue (rf/engine/schedule.h)
// computes, and the calling thread takes the rows. Memory does not grow with the number of texts.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rf/data/reader.h"
#include "rf/engine/embedder.h"

namespace rf::cli {

// A block of texts that are read, tokenized and submitted together.
struct TextBlock {
  struct Text {
    size_t begin, bytes;  // in `characters`
    int64_t line;
    std::shared_ptr<const std::string> source;
    std::string digest;  // of all texts up to this one, and of their ids
    std::string id;      // data::SourceText::id
  };
  std::string characters;
  std::vector<Text> texts;
  int64_t first = 0;                    // number of the first text, from 0
  int64_t bytes_before = 0, bytes = 0;  // bytes of the input read before this block, and in it
  engine::TokenizedTexts tokens;
  engine::Computation computation;
  std::vector<float> vectors;     // its rows of `tokens`
  std::atomic<int64_t> done = 0;  // the first vectors; after an error -1 minus their number
  std::exception_ptr error;

  std::string_view text(size_t i) const { return std::string_view(characters).substr(texts[i].begin, texts[i].bytes); }
  // The vector of text i, or the vectors of all its tokens.
  std::span<const float> vector(size_t i) const {
    return computation.of_sequence(vectors, tokens.offsets, tokens.sequence_of_text[i]);
  }
};

// Finished rows, in order.
struct EmbeddedRows {
  const TextBlock& block;
  size_t begin, end;  // texts of the block
};

struct EmbeddingRun {
  const engine::Embedder& embedder;
  data::TextReader& reader;
  int64_t token_budget;
  // Texts finished by an earlier run: they are read but not computed, and must match the digest.
  int64_t finished = 0;
  std::string finished_digest{};
  float largest = std::numeric_limits<float>::max();  // limit for the elements of a vector
};

struct EmbeddingCounts {
  int64_t texts = 0;   // in this run
  int64_t tokens = 0;  // including duplicates, which are not computed again
  int64_t full_texts = 0, replaced_bytes = 0;
  double seconds = 0;
};

// Thrown if the texts do not match the digest.
struct OtherTexts {
  int64_t finished;
};

// Throws Error for a vector that is not finite, or with an element beyond `largest`, naming its text.
EmbeddingCounts embed_texts(const EmbeddingRun& run, const std::function<void(const EmbeddedRows&)>& take);

}  // namespace rf::cli
