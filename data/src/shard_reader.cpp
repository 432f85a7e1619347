#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include "rf/data/shard.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "shard_format.h"

namespace rf::data {
namespace {

ShardHeader read_header(const std::string& path, std::span<const std::byte> bytes) {
  ShardHeader header;
  if (bytes.size() < sizeof(header)) {
    fail("shard", "{}: a shard must have at least {} bytes, got {}", path, sizeof(header), bytes.size());
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != kShardMagic) {
    fail("shard", "{}: a shard must begin with {}, got other bytes", path,
         std::string_view(kShardMagic.data(), kShardMagic.size()));
  }
  if (header.version != kShardVersion) {
    fail("shard", "{}: the version must be {}, got {}", path, kShardVersion, header.version);
  }
  if (header.vocab_size < 1 || header.vocab_size > uint64_t{1} << 31) {
    fail("shard", "{}: the vocabulary's size must be in [1, 2^31], got {}", path, header.vocab_size);
  }
  if (header.token_bytes != shard_token_bytes(header.vocab_size)) {
    fail("shard", "{}: a token must have {} bytes in a vocabulary of {}, got {}", path,
         shard_token_bytes(header.vocab_size), header.vocab_size, header.token_bytes);
  }
  // Bounded by the size first, so that the layout cannot overflow.
  if (header.tokens > bytes.size() || header.documents > bytes.size() || ShardLayout(header).end != bytes.size()) {
    fail("shard", "{}: {} tokens and {} documents do not fit the size, got {} bytes (is the file truncated?)", path,
         header.tokens, header.documents, bytes.size());
  }
  return header;
}

void check_sum(const std::string& path, const ShardHeader& header, std::span<const std::byte> bytes) {
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  XXH3_64bits_update(&state, bytes.data() + sizeof(header), bytes.size() - sizeof(header));
  XXH3_64bits_update(&state, bytes.data(), offsetof(ShardHeader, checksum));
  const uint64_t sum = XXH3_64bits_digest(&state);
  if (sum != header.checksum) {
    fail("shard", "{}: the checksum must be {:016x}, got {:016x} (the file is damaged)", path, header.checksum, sum);
  }
}

template <typename Token>
void check_tokens(const std::string& path, const Token* tokens, uint64_t count, uint64_t vocab_size) {
  Token largest = 0;
  for (uint64_t i = 0; i < count; ++i) largest = std::max(largest, tokens[i]);
  if (count > 0 && largest >= vocab_size) {
    const auto at = std::find(tokens, tokens + count, largest) - tokens;
    fail("shard", "{}: a token id must be in [0, {}), got {} at token {}", path, vocab_size, largest, at);
  }
}

void check_documents(const std::string& path, std::span<const uint64_t> offsets, uint64_t tokens) {
  if (offsets.front() != 0) fail("shard", "{}: the first document must begin at 0, got {}", path, offsets.front());
  for (size_t i = 1; i < offsets.size(); ++i) {
    if (offsets[i] <= offsets[i - 1]) {
      fail("shard", "{}: document {} must end after {}, got {}", path, i - 1, offsets[i - 1], offsets[i]);
    }
  }
  if (offsets.back() != tokens) {
    fail("shard", "{}: the last document must end at {}, got {}", path, tokens, offsets.back());
  }
}

}  // namespace

struct ShardReader::Impl {
  explicit Impl(const std::string& name) : path(name), file(name), header(read_header(name, file.bytes())) {
    check_sum(path, header, file.bytes());
    const ShardLayout layout(header);
    const std::byte* base = file.bytes().data();
    if (header.token_bytes == 2) {
      short_tokens = reinterpret_cast<const uint16_t*>(base + layout.tokens);
      check_tokens(path, short_tokens, header.tokens, header.vocab_size);
    } else {
      long_tokens = reinterpret_cast<const uint32_t*>(base + layout.tokens);
      check_tokens(path, long_tokens, header.tokens, header.vocab_size);
    }
    words = reinterpret_cast<const uint8_t*>(base + layout.words);
    offsets = reinterpret_cast<const uint64_t*>(base + layout.documents);
    check_documents(path, {offsets, header.documents + 1}, header.tokens);
    vocab_hash.assign(header.vocab_hash.data(), header.vocab_hash.size());
  }

  std::string path;
  io::MappedFile file;
  ShardHeader header;
  const uint16_t* short_tokens = nullptr;
  const uint32_t* long_tokens = nullptr;
  const uint8_t* words = nullptr;
  const uint64_t* offsets = nullptr;
  std::string vocab_hash;
};

ShardReader::ShardReader(const std::string& path) : impl_(std::make_unique<Impl>(path)) {}
ShardReader::~ShardReader() = default;
ShardReader::ShardReader(ShardReader&&) noexcept = default;

int64_t ShardReader::tokens() const {
  return static_cast<int64_t>(impl_->header.tokens);
}
int64_t ShardReader::documents() const {
  return static_cast<int64_t>(impl_->header.documents);
}
int64_t ShardReader::vocab_size() const {
  return static_cast<int64_t>(impl_->header.vocab_size);
}
const std::string& ShardReader::vocab_hash() const {
  return impl_->vocab_hash;
}
int64_t ShardReader::document_begin(int64_t document) const {
  return static_cast<int64_t>(impl_->offsets[document]);
}

int32_t ShardReader::token(int64_t index) const {
  return impl_->short_tokens != nullptr ? int32_t{impl_->short_tokens[index]}
                                        : static_cast<int32_t>(impl_->long_tokens[index]);
}

void ShardReader::check_whole() const {
  if (impl_->offsets[impl_->header.documents] == impl_->header.tokens) return;
  fail(impl_->path, "a file must keep its size while it is read, got a part of it that is gone");
}

bool ShardReader::starts_word(int64_t index) const {
  return (impl_->words[index / 8] >> (index % 8) & 1) != 0;
}

}  // namespace rf::data
