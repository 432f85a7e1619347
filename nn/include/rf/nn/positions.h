// Where tokens are. Positions are integers; packed sequences restart, continuations with a cache go on.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

namespace rf::nn {

inline constexpr int64_t kMaxPosition = int64_t{1} << 53;      // differences of two are exact
inline constexpr int64_t kMaxDistanceRows = int64_t{1} << 24;  // of a table by distance

// Positions of the queries or of the keys. first and end belong to the sequence that a token is part of, keys that came
// earlier included: its lowest position, and one past its highest. Encodings whose terms depend on a sequence's length
// or start (dynamic scalings, xPos) read them, so that a sequence never sees the rest of its batch.
struct TokenPositions {
  at::Tensor ids;         // int64 [1 or B, T]
  at::Tensor first, end;  // int64 [1 or B, T]
  at::Tensor axes = {};   // int64 [1 or B, T, axes], of tokens of pictures and films; undefined: every axis is ids
  at::Tensor real = {};   // float64 [B, T], positions that training augments, in place of ids; undefined: ids
};

struct Positions {
  TokenPositions query, key;     // the same tensors in self-attention without a cache
  at::Tensor sequences_BS = {};  // of the keys, as make_positions takes them; undefined: each row is one sequence
  bool same_tokens() const { return key.ids.is_same(query.ids); }
};

// The positions of one side as make_positions takes them, with ids and axes alone: what attention reads. Their values
// are not looked at. name: "query" or "key", for the message of an Error.
TokenPositions token_positions(const at::Tensor& given, const char* name);

// query: int64 [T], [1,T] or [B,T]; key: the same with S, undefined: query. Either may be [1 or B, T, axes], a position
// on each axis; ids is then the highest of them, as in transformers where a length is taken.
// sequences: int [1 or B, S], equal values >= 0 within a sequence of a row, -1: padding (belongs to no sequence: first
// = its own position, end = its own + 1); undefined: each row is one sequence. Queries are the last T keys of a row;
// with sequences undefined they may also be others, and first/end are taken over both sides.
Positions make_positions(const at::Tensor& query, const at::Tensor& key = {}, const at::Tensor& sequences = {});

// The first and the last of the positions 0..tokens-1: what the limits of an encoding are checked with, at no cost that
// grows with tokens >= 1.
Positions ends_of_sequence(int64_t tokens);

// The lowest and the highest distance, query minus key, that any row of the batch has, both clamped to
// -farthest..farthest; (0, 0) without tokens. Throws Error for a position beyond 2^53, and, with both ends, when there
// are more than 2^24 distances, more rows than a table may have.
std::pair<int64_t, int64_t> distance_range(const Positions& positions, int64_t farthest = INT64_MAX);

}  // namespace rf::nn
