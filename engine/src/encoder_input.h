// What a call of the encoder is given, and the memory that it works in.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "linear_attention.h"
#include "memory.h"
#include "position.h"

namespace rf::engine {

// What a call of the encoder computes.
struct EncoderInput {
  Sequences sequences;
  const int32_t* ids = nullptr;     // [tokens]
  const int32_t* types = nullptr;   // [tokens], or nullptr: 0
  const uint8_t* attend = nullptr;  // [tokens], 0: no query attends to the token; nullptr: to all
};

// Tokens that extend cached sequences: sequence sequences[i] of the cache grows by the tokens ids[offsets[i]] ..
// ids[offsets[i + 1] - 1]. Sequences ascend.
struct Extension {
  std::span<const int64_t> sequences;
  std::span<const int64_t> offsets;  // [sequences.size() + 1], rising from 0
  const int32_t* ids = nullptr;
  int64_t tokens() const { return offsets.back(); }
};

// The largest magnitudes of a layer's normalised vectors, [hidden_size], at the inputs of its attention and of its
// feed-forward network.
struct LayerInputs {
  std::vector<float> attention, feed_forward;
};

// The memory of one call, kept for the next.
class Workspace {
 public:
  // Buffer i of at least that many bytes, aligned to 64. Growing it loses its contents.
  void* buffer(int index, int64_t bytes);
  PositionRows rows;
  FeatureMemory features;
  std::vector<LayerInputs>* measured = nullptr;  // of each layer, which a call of float32 raises; nullptr: not wanted

  // Neighbours in an extension and in the cache, with as many tokens: attention computes them in one call.
  struct Group {
    int64_t first = 0, count = 0;  // in the extension
    int64_t tokens = 0, keys = 0;  // of each sequence: new tokens; new and earlier tokens
    PositionRows rows;             // of the keys
  };
  std::vector<Group> groups;  // of the last extension, as many as `used_groups`
  size_t used_groups = 0;
  std::vector<int64_t> prefixes;   // of the sequences of a prefix language model
  std::vector<int32_t> types;      // of new tokens, where they have any
  std::vector<int64_t> positions;  // of new tokens
  std::vector<int64_t> counting;   // 0, 1, ..

 private:
  struct Buffer {
    AlignedMemory memory;
    int64_t bytes = 0;
  };
  Buffer buffers_[4];
};

// The attention of a layer; made by std::cref, which allocates no memory.
using Attend = std::function<void(int64_t layer, const void* qkv, void* out)>;

}  // namespace rf::engine
