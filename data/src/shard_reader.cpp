#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <string_view>

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
  // Checks the bound by the file size first, so that the layout cannot overflow.
  if (header.tokens > bytes.size() || header.documents > bytes.size() || ShardLayout(header).end != bytes.size()) {
    fail("shard", "{}: {} tokens and {} documents do not fit the size, got {} bytes (is the file truncated?)", path,
         header.tokens, header.documents, bytes.size());
  }
  return header;
}

[[noreturn]] void fail_cut_short(const std::string& path) {
  fail(path, "a file must keep its size while it is read, got a part of it that is gone");
}

// A shard with valid header and size, while it is checked. Pages are released after reading, so that a shard of any
// size needs little memory.
class ShardCheck {
 public:
  ShardCheck(const std::string& path, const io::MappedFile& file, const ShardHeader& header)
      : path_(path), file_(file), header_(header), layout_(header) {
    XXH3_64bits_reset(&state_);
  }

  void run() {
    const std::span tokens = file_.bytes().subspan(layout_.tokens, header_.tokens * header_.token_bytes);
    const uint64_t largest = header_.token_bytes == 2 ? read_tokens<uint16_t>(tokens) : read_tokens<uint32_t>(tokens);
    read(file_.bytes().subspan(layout_.tokens + tokens.size()), [](std::span<const std::byte>) {});
    check_sum();
    if (header_.tokens > 0 && largest >= header_.vocab_size) fail_token(tokens, largest);
    check_documents();
    io::release_pages(file_.bytes());
  }

 private:
  // Adds the bytes to the checksum in pieces, and passes each piece to `take` first.
  template <typename Take>
  void read(std::span<const std::byte> bytes, Take take) {
    constexpr size_t kPieceBytes = size_t{1} << 23;
    while (!bytes.empty()) {
      const std::span piece = bytes.first(std::min(kPieceBytes, bytes.size()));
      take(piece);
      XXH3_64bits_update(&state_, piece.data(), piece.size());
      io::release_pages(piece);
      bytes = bytes.subspan(piece.size());
    }
  }
  // The largest token id.
  template <typename Token>
  uint64_t read_tokens(std::span<const std::byte> bytes) {
    Token largest = 0;
    read(bytes, [&](std::span<const std::byte> piece) {
      const auto* const tokens = reinterpret_cast<const Token*>(piece.data());
      for (size_t i = 0; i < piece.size() / sizeof(Token); ++i) largest = std::max(largest, tokens[i]);
    });
    return largest;
  }
  void check_sum() {
    XXH3_64bits_update(&state_, &header_, offsetof(ShardHeader, checksum));
    const uint64_t sum = XXH3_64bits_digest(&state_);
    if (sum == header_.checksum) return;
    std::error_code unknown;
    const uintmax_t size = std::filesystem::file_size(path_, unknown);
    if (!unknown && size < file_.bytes().size()) fail_cut_short(path_);
    fail("shard", "{}: the checksum must be {:016x}, got {:016x} (the file is damaged)", path_, header_.checksum, sum);
  }
  [[noreturn]] void fail_token(std::span<const std::byte> bytes, uint64_t token) const {
    size_t at = 0;
    while (std::memcmp(bytes.data() + at * header_.token_bytes, &token, header_.token_bytes) != 0) ++at;
    fail("shard", "{}: a token id must be in [0, {}), got {} at token {}", path_, header_.vocab_size, token, at);
  }
  void check_documents() const {
    const auto* const offsets = reinterpret_cast<const uint64_t*>(file_.bytes().data() + layout_.documents);
    if (offsets[0] != 0) fail("shard", "{}: the first document must begin at 0, got {}", path_, offsets[0]);
    for (size_t i = 1; i <= header_.documents; ++i) {
      if (offsets[i] > offsets[i - 1]) continue;
      fail("shard", "{}: document {} must end after {}, got {}", path_, i - 1, offsets[i - 1], offsets[i]);
    }
    if (offsets[header_.documents] == header_.tokens) return;
    fail("shard", "{}: the last document must end at {}, got {}", path_, header_.tokens, offsets[header_.documents]);
  }

  const std::string& path_;
  const io::MappedFile& file_;
  const ShardHeader& header_;
  const ShardLayout layout_;
  XXH3_state_t state_;
};

}  // namespace

ShardReader::ShardReader(const std::string& path) : path_(path), file_(path) {
  header_ = std::make_shared<const ShardHeader>(read_header(path, file_.bytes()));
  const ShardHeader& header = *header_;
  const ShardLayout layout(header);
  tokens_ = static_cast<int64_t>(header.tokens);
  documents_ = static_cast<int64_t>(header.documents);
  vocab_size_ = static_cast<int64_t>(header.vocab_size);
  vocab_hash_.assign(header.vocab_hash.data(), header.vocab_hash.size());
  const std::byte* const base = file_.bytes().data();
  token_bytes_ = base + layout.tokens;
  is_short_ = header.token_bytes == 2;
  words_ = reinterpret_cast<const uint8_t*>(base + layout.words);
  offsets_ = reinterpret_cast<const uint64_t*>(base + layout.documents);
}

void ShardReader::verify() const {
  if (is_verified_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(verifying_);
  if (is_verified_.load(std::memory_order_relaxed)) return;
  ShardCheck(path_, file_, *header_).run();
  is_verified_.store(true, std::memory_order_release);
}

void ShardReader::release_pages() const { io::release_pages(file_.bytes()); }

void ShardReader::document_lengths(int64_t first, std::span<int64_t> lengths) const {
  const uint64_t* offset = offsets_ + first;
  for (int64_t& length : lengths) {
    const uint64_t begin = *offset++;
    if (*offset <= begin || *offset > static_cast<uint64_t>(tokens_)) {
      verify();
      fail_cut_short(path_);
    }
    length = static_cast<int64_t>(*offset - begin);
  }
}

void ShardReader::copy(int64_t begin, std::span<int32_t> ids, std::span<uint8_t> starts_word) const {
  if (is_short_) {
    std::copy_n(reinterpret_cast<const uint16_t*>(token_bytes_) + begin, ids.size(), ids.begin());
  } else {
    std::memcpy(ids.data(), token_bytes_ + static_cast<size_t>(begin) * sizeof(int32_t), ids.size_bytes());
  }
  for (uint64_t i = 0, index = static_cast<uint64_t>(begin); i < starts_word.size(); ++i, ++index) {
    starts_word[i] = words_[index / 8] >> (index % 8) & 1;
  }
}

void ShardReader::check_whole() const {
  if (offsets_[documents_] != static_cast<uint64_t>(tokens_)) fail_cut_short(path_);
}

}  // namespace rf::data
