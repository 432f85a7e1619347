// The header of a token shard, shared by writer and reader; shard.h describes the file.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace rf::data {

static_assert(std::endian::native == std::endian::little, "shards are little-endian and mapped as they are");

constexpr std::array<char, 8> kShardMagic{'R', 'F', 'S', 'H', 'A', 'R', 'D', '1'};
constexpr uint32_t kShardVersion = 1;
constexpr size_t kShardAlignment = 64;
constexpr size_t kVocabHashDigits = 32;

struct ShardHeader {
  std::array<char, 8> magic = kShardMagic;
  uint32_t version = kShardVersion;
  uint32_t token_bytes = 0;
  uint64_t tokens = 0;
  uint64_t documents = 0;
  uint64_t vocab_size = 0;
  std::array<char, kVocabHashDigits> vocab_hash{};
  std::array<uint64_t, 6> reserved{};
  uint64_t checksum = 0;
};
static_assert(sizeof(ShardHeader) == 128 && offsetof(ShardHeader, checksum) == 120);

constexpr uint64_t shard_token_bytes(uint64_t vocab_size) { return vocab_size <= 65536 ? 2 : 4; }
constexpr size_t align_up(size_t bytes) { return (bytes + kShardAlignment - 1) / kShardAlignment * kShardAlignment; }

// The starts of the sections and the end of the file, in bytes.
struct ShardLayout {
  size_t tokens, words, documents, end;

  explicit constexpr ShardLayout(const ShardHeader& header)
      : tokens(sizeof(ShardHeader)),
        words(align_up(tokens + header.tokens * header.token_bytes)),
        documents(align_up(words + (header.tokens + 7) / 8)),
        end(documents + (header.documents + 1) * sizeof(uint64_t)) {}
};

}  // namespace rf::data
