#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <span>

#include "rf/data/shard.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "shard_format.h"

namespace rf::data {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;

template <typename T>
std::span<const std::byte> bytes_of(const T* data, size_t count) {
  return std::as_bytes(std::span(data, count));
}

}  // namespace

struct ShardWriter::Impl {
  explicit Impl(const std::string& path) : file(path) { XXH3_64bits_reset(&hash); }

  void append(std::span<const std::byte> bytes) {
    buffer.insert(buffer.end(), bytes.begin(), bytes.end());
    if (buffer.size() >= kBufferBytes) flush();
  }
  void flush() {
    XXH3_64bits_update(&hash, buffer.data(), buffer.size());
    file.write(buffer);
    written += buffer.size();
    buffer.clear();
  }
  void pad_to(size_t offset) { buffer.resize(buffer.size() + offset - (written + buffer.size())); }

  template <typename Token>
  void append_tokens(const std::vector<int32_t>& ids) {
    std::array<Token, 1024> block;
    for (size_t begin = 0; begin < ids.size(); begin += block.size()) {
      const size_t count = std::min(block.size(), ids.size() - begin);
      for (size_t i = 0; i < count; ++i) block[i] = static_cast<Token>(ids[begin + i]);
      append(bytes_of(block.data(), count));
    }
  }

  io::AtomicFile file;
  ShardHeader header;
  std::vector<uint64_t> offsets{0};
  std::vector<uint8_t> words;
  std::vector<std::byte> buffer;
  size_t written = 0;
  XXH3_state_t hash;
};

ShardWriter::ShardWriter(const std::string& path, int64_t vocab_size, const std::string& vocab_hash) {
  if (vocab_size < 1) fail("shard", "{}: the vocabulary must have at least one token, got {}", path, vocab_size);
  if (vocab_hash.size() != kVocabHashDigits) {
    fail("shard", "{}: a vocabulary hash must have {} digits, got \"{}\"", path, kVocabHashDigits, vocab_hash);
  }
  impl_ = std::make_unique<Impl>(path);
  impl_->header.vocab_size = static_cast<uint64_t>(vocab_size);
  impl_->header.token_bytes = static_cast<uint32_t>(shard_token_bytes(impl_->header.vocab_size));
  std::copy(vocab_hash.begin(), vocab_hash.end(), impl_->header.vocab_hash.begin());
  // The header's place; its content is known at finish().
  impl_->file.write(bytes_of(&impl_->header, 1));
  impl_->written = sizeof(ShardHeader);
}

ShardWriter::~ShardWriter() = default;

void ShardWriter::add(const std::vector<int32_t>& ids, const std::vector<uint8_t>& starts_word) {
  if (ids.size() != starts_word.size()) {
    fail("shard", "a document needs one starts_word a token, got {} and {}", ids.size(), starts_word.size());
  }
  if (ids.empty()) return;
  ShardHeader& header = impl_->header;
  for (const int32_t id : ids) {
    if (id < 0 || uint64_t(id) >= header.vocab_size) {
      fail("shard", "a token id must be in [0, {}), got {}", header.vocab_size, id);
    }
  }
  if (header.token_bytes == 2) {
    impl_->append_tokens<uint16_t>(ids);
  } else {
    impl_->append_tokens<uint32_t>(ids);
  }
  impl_->words.resize((header.tokens + ids.size() + 7) / 8);
  for (size_t i = 0; i < ids.size(); ++i) {
    const uint64_t at = header.tokens + i;
    if (starts_word[i] != 0) impl_->words[at / 8] |= static_cast<uint8_t>(1u << (at % 8));
  }
  header.tokens += ids.size();
  header.documents += 1;
  impl_->offsets.push_back(header.tokens);
}

int64_t ShardWriter::tokens() const {
  return static_cast<int64_t>(impl_->header.tokens);
}
int64_t ShardWriter::documents() const {
  return static_cast<int64_t>(impl_->header.documents);
}

void ShardWriter::finish() {
  Impl& impl = *impl_;
  const ShardLayout layout(impl.header);
  impl.pad_to(layout.words);
  impl.append(bytes_of(impl.words.data(), impl.words.size()));
  impl.pad_to(layout.documents);
  impl.append(bytes_of(impl.offsets.data(), impl.offsets.size()));
  impl.flush();
  XXH3_64bits_update(&impl.hash, &impl.header, offsetof(ShardHeader, checksum));
  impl.header.checksum = XXH3_64bits_digest(&impl.hash);
  impl.file.write_at(0, bytes_of(&impl.header, 1));
  impl.file.commit();
}

}  // namespace rf::data
