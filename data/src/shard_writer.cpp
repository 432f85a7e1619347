#define XXH_INLINE_ALL
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

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

// A section after the tokens, kept in an unnamed file until all tokens are written.
class Section {
 public:
  explicit Section(std::string shard) : shard_(std::move(shard)) {
    std::string name = shard_ + ".XXXXXX";
    fd_ = ::mkostemp(name.data(), O_CLOEXEC);
    if (fd_ < 0) fail_errno("create a file beside it");
    ::unlink(name.c_str());
  }
  ~Section() { ::close(fd_); }
  Section(const Section&) = delete;
  Section& operator=(const Section&) = delete;

  void append(std::span<const std::byte> bytes) {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    if (buffer_.size() >= kBufferBytes) flush();
  }
  // Reads the section back in pieces, once.
  template <typename Take>
  void read(Take take) {
    flush();
    buffer_.resize(kBufferBytes);
    for (off_t offset = 0;;) {
      const ssize_t count = ::pread(fd_, buffer_.data(), buffer_.size(), offset);
      if (count < 0 && errno != EINTR) fail_errno("read a file beside it");
      if (count == 0) return;
      if (count > 0) take(std::span<const std::byte>(buffer_).first(static_cast<size_t>(count)));
      offset += std::max(count, ssize_t{0});
    }
  }

 private:
  void flush() {
    std::span<const std::byte> rest = buffer_;
    while (!rest.empty()) {
      const ssize_t count = ::write(fd_, rest.data(), rest.size());
      if (count < 0 && errno != EINTR) fail_errno("write a file beside it");
      if (count > 0) rest = rest.subspan(static_cast<size_t>(count));
    }
    buffer_.clear();
  }
  [[noreturn]] void fail_errno(const char* action) const {
    const int code = errno;
    fail("shard", "{}: cannot {}: {}", shard_, action, std::strerror(code));
  }

  std::string shard_;
  int fd_ = -1;
  std::vector<std::byte> buffer_;
};

}  // namespace

struct ShardWriter::Impl {
  explicit Impl(const std::string& path) : file(path), words(path), documents(path) { XXH3_64bits_reset(&hash); }

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
  void append(Section& section) {
    section.read([this](std::span<const std::byte> bytes) { append(bytes); });
  }

  template <typename Token>
  void append_tokens(std::span<const int32_t> ids) {
    std::array<Token, 1024> block;
    for (size_t begin = 0; begin < ids.size(); begin += block.size()) {
      const size_t count = std::min(block.size(), ids.size() - begin);
      for (size_t i = 0; i < count; ++i) block[i] = static_cast<Token>(ids[begin + i]);
      append(bytes_of(block.data(), count));
    }
  }
  // `first`: the number of earlier tokens.
  void append_words(uint64_t first, std::span<const uint8_t> starts_word) {
    std::array<uint8_t, 1024> block;
    size_t bytes = 0;
    for (size_t i = 0; i < starts_word.size(); ++i) {
      const uint64_t bit = (first + i) % 8;
      last_words |= static_cast<uint8_t>((starts_word[i] != 0 ? 1u : 0u) << bit);
      if (bit != 7) continue;
      block[bytes++] = std::exchange(last_words, uint8_t{0});
      if (bytes == block.size()) words.append(bytes_of(block.data(), std::exchange(bytes, size_t{0})));
    }
    words.append(bytes_of(block.data(), bytes));
  }

  io::AtomicFile file;
  ShardHeader header;
  Section words, documents;
  uint8_t last_words = 0;  // bits of the last tokens, fewer than eight
  std::vector<std::byte> buffer;
  size_t written = 0;
  XXH3_state_t hash;
  uint64_t document_begin = 0;
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
  // Space for the header, written by finish().
  impl_->file.write(bytes_of(&impl_->header, 1));
  impl_->written = sizeof(ShardHeader);
}

ShardWriter::~ShardWriter() = default;

void ShardWriter::append(std::span<const int32_t> ids, std::span<const uint8_t> starts_word) {
  if (ids.size() != starts_word.size()) {
    fail("shard", "a document needs one starts_word per token, got {} and {}", ids.size(), starts_word.size());
  }
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
  impl_->append_words(header.tokens, starts_word);
  header.tokens += ids.size();
}

void ShardWriter::end_document() {
  ShardHeader& header = impl_->header;
  if (impl_->document_begin == header.tokens) return;
  impl_->documents.append(bytes_of(&impl_->document_begin, 1));
  impl_->document_begin = header.tokens;
  header.documents += 1;
}

int64_t ShardWriter::tokens() const { return static_cast<int64_t>(impl_->header.tokens); }

void ShardWriter::finish() {
  end_document();
  Impl& impl = *impl_;
  const ShardLayout layout(impl.header);
  impl.pad_to(layout.words);
  if (impl.header.tokens % 8 != 0) impl.words.append(bytes_of(&impl.last_words, 1));
  impl.append(impl.words);
  impl.pad_to(layout.documents);
  impl.append(impl.documents);
  impl.append(bytes_of(&impl.header.tokens, 1));  // the end of the last document
  impl.flush();
  XXH3_64bits_update(&impl.hash, &impl.header, offsetof(ShardHeader, checksum));
  impl.header.checksum = XXH3_64bits_digest(&impl.hash);
  impl.file.write_at(0, bytes_of(&impl.header, 1));
  impl.file.commit();
}

}  // namespace rf::data
