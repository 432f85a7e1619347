// The encoder of a model directory, without torch: embeddings, layers of attention and feed-forward networks, on
// sequences that lie one after the other without padding. The hidden states of a sequence have the same bits whatever
// other sequences a call has, and for any number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "layers.h"
#include "position.h"
#include "rf/model/config.h"
#include "weights.h"

namespace rf::engine {

// What a call of the encoder computes.
struct EncoderInput {
  Sequences sequences;
  const int32_t* ids = nullptr;     // [tokens]
  const int32_t* types = nullptr;   // [tokens], or nullptr: 0
  const uint8_t* attend = nullptr;  // [tokens], 0: no query attends to the token; nullptr: to all
};

// The memory of one call, kept for the next.
class Workspace {
 public:
  // Buffer i of at least that many bytes, aligned to 64; what it held is lost where it grows.
  void* buffer(int index, int64_t bytes);
  PositionRows rows;

 private:
  struct Free {
    void operator()(void* memory) const;
  };
  struct Buffer {
    std::unique_ptr<void, Free> memory;
    int64_t bytes = 0;
  };
  Buffer buffers_[4];
};

class Encoder {
 public:
  // prefix: of the encoder's names in `weights`.
  Encoder(const ModelConfig& config, const std::string& model_dir, const Weights& weights, const std::string& prefix,
          Precision precision, const std::function<void(const std::string&)>& warn);

  rf_dtype dtype() const { return dtype_; }
  // Throws Error for ids, types and positions out of range.
  void check(const EncoderInput& input) const;
  // The hidden states of all tokens, [tokens, hidden_size] of dtype(), in `work` until its next use. The input must
  // have been checked.
  void* encode(const EncoderInput& input, Workspace& work) const;

 private:
  struct Layer {
    Linear qkv, attention_output, intermediate, output;
    Norm attention_norm, output_norm;
  };

  void embed(const EncoderInput& input, Workspace& work, void* x) const;
  void attend(int64_t layer, const EncoderInput& input, const PositionRows& rows, const void* qkv, void* out) const;

  ModelConfig config_;
  rf_dtype dtype_;
  std::unique_ptr<Position> position_;
  MappedRows words_, types_;
  Norm embeddings_norm_;
  Linear embeddings_project_;  // empty where embedding_size == hidden_size
  std::vector<Layer> layers_;
};

}  // namespace rf::engine
