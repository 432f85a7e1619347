// Positions of tokens. They are integers; packed sequences restart at 0, and calls with a cache continue. Encodings
// read their values, so make_positions keeps them on the CPU, and notes the device for the terms.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

namespace rf::nn {

inline constexpr int64_t kMaxPosition = int64_t{1} << 53;      // differences of two are exact
inline constexpr int64_t kMaxDistanceRows = int64_t{1} << 24;  // of a table by distance

// Positions of the queries or of the keys. first and end describe the sequence of a token, including earlier keys: its
// lowest position, and one past its highest. Encodings whose terms depend on a sequence's length or start (dynamic
// scalings, xPos) read them, so that a sequence never sees the rest of its batch.
struct TokenPositions {
  at::Tensor ids;         // int64 [1 or B, T]
  at::Tensor first, end;  // int64 [1 or B, T]
  at::Tensor axes = {};   // int64 [1 or B, T, axes], of tokens of images and videos; undefined: every axis is ids
  at::Tensor real = {};   // float64 [B, T], augmented training positions, instead of ids; undefined: ids
  at::Device device = at::kCPU;  // of the queries and keys, to which terms go
};

struct Positions {
  TokenPositions query, key;        // the same tensors in self-attention without a cache
  at::Tensor sequence_ids_BS = {};  // of the keys, as in make_positions; undefined: each row is one sequence
  bool same_tokens() const { return key.ids.is_same(query.ids); }
  at::Device device() const { return query.device; }
  Positions& for_device(at::Device device) {
    query.device = key.device = device;
    return *this;
  }
};

// The positions of one side as in make_positions, with only the ids and axes that attention reads, where they are.
// Their values are not checked. name: "query" or "key", for the message of an Error.
TokenPositions token_positions(const at::Tensor& given, const char* name);

// query: int64 [T], [1,T] or [B,T]; key: the same with S, undefined: query. Either may be [1 or B, T, axes], a position
// on each axis; ids is then their maximum, as for lengths in transformers. sequences: int [1 or B, S], equal values
// >= 0 within a sequence of a row, -1: padding (outside every sequence: first = its own position, end = its own + 1);
// undefined: each row is one sequence. Queries are the last T keys of a row; with sequences undefined they may also be
// other tokens, and first/end cover both sides. Terms are for the device of `query`. Waits for positions on a GPU.
Positions make_positions(const at::Tensor& query, const at::Tensor& key = {}, const at::Tensor& sequences = {});

// The first and the last of the positions 0..tokens-1: used to check the limits of an encoding; the cost does not grow
// with tokens >= 1.
Positions ends_of_sequence(int64_t tokens);

// The lowest and the highest distance, query minus key, that any row of the batch has, both clamped to
// -farthest..farthest; (0, 0) without tokens. Throws Error for a position beyond 2^53, and, with both ends, for more
// than 2^24 distances, the largest number of rows of a table.
std::pair<int64_t, int64_t> distance_range(const Positions& positions, int64_t farthest = INT64_MAX);

}  // namespace rf::nn
