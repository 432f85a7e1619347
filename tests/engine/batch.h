// Sequences for calls of a model.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "rf/engine/model.h"

namespace rf::tests {

struct Batch {
  std::vector<int32_t> ids, types;
  std::vector<int64_t> offsets = {0};
  engine::Tokens tokens() const { return {.ids = ids, .offsets = offsets, .types = types}; }
};

// Ids of the vocabulary of small_config(), and types.
inline Batch batch_of(std::initializer_list<int> lengths) {
  Batch batch;
  for (const int length : lengths) {
    for (int i = 0; i < length; ++i) {
      batch.ids.push_back((7 * i + length) % 31);
      batch.types.push_back(i % 2);
    }
    batch.offsets.push_back(static_cast<int64_t>(batch.ids.size()));
  }
  return batch;
}

}  // namespace rf::tests
