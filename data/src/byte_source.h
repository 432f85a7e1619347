// The bytes of a file, a pipe or standard input, decompressed while they are read: gzip (RFC 1952, also several
// members, zero bytes after the last) and zstd (RFC 8878, several frames, windows up to 2 GiB). Memory: the buffers,
// and zstd's window.
#pragma once

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <string_view>

#include "input_files.h"
#include "rf/io/error.h"

namespace rf::data {

inline constexpr size_t kInputBufferBytes = size_t{1} << 18;

// A file descriptor with a buffer of bytes that are not yet consumed.
class RawInput {
 public:
  explicit RawInput(const std::string& path) : name_(source_name(path)) {
    fd_ = path == kStandardInput ? ::dup(STDIN_FILENO) : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd_ < 0) fail("input", "{} must be readable, got: {}", name_, std::strerror(errno));
  }
  ~RawInput() { ::close(fd_); }
  RawInput(const RawInput&) = delete;
  RawInput& operator=(const RawInput&) = delete;

  const std::string& name() const { return name_; }
  int64_t bytes_read() const { return bytes_read_; }
  std::string_view rest() const { return rest_; }
  void take(size_t bytes) { rest_.remove_prefix(bytes); }
  // Reads if the buffer is empty; false at the end of the file.
  bool fill() { return !rest_.empty() || read(0); }
  // The first `bytes` of the buffer, fewer only at the end.
  std::string_view peek(size_t bytes) {
    while (rest_.size() < bytes && read(rest_.size())) {
    }
    return rest_.substr(0, bytes);
  }

 private:
  // Moves the remaining `kept` bytes to the front and reads more after them.
  bool read(size_t kept) {
    std::memmove(buffer_.data(), rest_.data(), kept);
    rest_ = {buffer_.data(), kept};
    ssize_t count = 0;
    do {
      count = ::read(fd_, buffer_.data() + kept, buffer_.size() - kept);
    } while (count < 0 && errno == EINTR);
    if (count < 0) fail("input", "{} must be readable, got: {}", name_, std::strerror(errno));
    bytes_read_ += count;
    rest_ = {buffer_.data(), kept + static_cast<size_t>(count)};
    return count > 0;
  }

  std::string name_;
  int fd_ = -1;
  int64_t bytes_read_ = 0;
  std::string buffer_ = std::string(kInputBufferBytes, '\0');
  std::string_view rest_ = {buffer_.data(), 0};
};

class Unpacker {
 public:
  virtual ~Unpacker() = default;
  virtual std::string_view next(RawInput& input) = 0;  // empty at the end
};

class GzipBytes final : public Unpacker {
 public:
  GzipBytes() {
    constexpr int kGzipOnly = 16;
    if (::inflateInit2(&stream_, MAX_WBITS + kGzipOnly) != Z_OK) throw std::bad_alloc();
  }
  ~GzipBytes() override { ::inflateEnd(&stream_); }

  std::string_view next(RawInput& input) override {
    while (input.fill()) {
      if (between_members_ && !begin_member(input)) continue;
      const size_t made = inflate_some(input);
      if (made > 0) return {out_.data(), made};
    }
    if (!between_members_) fail("input", "{} must be complete, got gzip data that end early", input.name());
    return {};
  }

 private:
  // Consumes padding and returns false for it.
  bool begin_member(RawInput& input) {
    if (any_member_ && input.rest().front() == '\0') {
      const size_t padding = input.rest().find_first_not_of('\0');
      input.take(std::min(padding, input.rest().size()));
      return false;
    }
    ::inflateReset(&stream_);
    between_members_ = false;
    any_member_ = true;
    return true;
  }
  size_t inflate_some(RawInput& input) {
    const std::string_view bytes = input.rest();
    // zlib does not write through next_in, but declares it without const.
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
    stream_.avail_in = static_cast<uInt>(bytes.size());
    stream_.next_out = reinterpret_cast<Bytef*>(out_.data());
    stream_.avail_out = static_cast<uInt>(out_.size());
    const int code = ::inflate(&stream_, Z_NO_FLUSH);
    if (code == Z_MEM_ERROR) throw std::bad_alloc();
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR) {
      fail("input", "{} must be undamaged, got gzip data with an error: {}", input.name(),
           stream_.msg != nullptr ? stream_.msg : "a preset dictionary");
    }
    input.take(bytes.size() - stream_.avail_in);
    between_members_ = code == Z_STREAM_END;
    return out_.size() - stream_.avail_out;
  }

  z_stream stream_{};
  std::string out_ = std::string(kInputBufferBytes, '\0');
  bool between_members_ = true, any_member_ = false;
};

class ZstdBytes final : public Unpacker {
 public:
  ZstdBytes() : context_(::ZSTD_createDCtx()) {
    if (context_ == nullptr) throw std::bad_alloc();
    constexpr int kLongestWindowLog = 31;
    ::ZSTD_DCtx_setParameter(context_, ZSTD_d_windowLogMax, kLongestWindowLog);
  }
  ~ZstdBytes() override { ::ZSTD_freeDCtx(context_); }

  std::string_view next(RawInput& input) override {
    while (input.fill() || more_in_context_) {
      const std::string_view bytes = input.rest();
      ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
      ZSTD_outBuffer out{out_.data(), out_.size(), 0};
      const size_t hint = ::ZSTD_decompressStream(context_, &out, &in);
      if (::ZSTD_isError(hint) != 0) {
        fail("input", "{} must be undamaged, got zstd data with an error: {}", input.name(), ::ZSTD_getErrorName(hint));
      }
      input.take(in.pos);
      inside_frame_ = hint != 0;
      more_in_context_ = out.pos == out.size && inside_frame_;
      if (out.pos > 0) return {out_.data(), out.pos};
    }
    if (inside_frame_) fail("input", "{} must be complete, got zstd data that end early", input.name());
    return {};
  }

 private:
  ZSTD_DCtx* context_;
  std::string out_ = std::string(kInputBufferBytes, '\0');
  bool inside_frame_ = false;
  bool more_in_context_ = false;  // the last call filled its buffer
};

class ByteSource {
 public:
  // The first bytes decide whether the data are compressed. Throws Error if a file named .gz or .zst is not.
  explicit ByteSource(const std::string& path) : input_(path) {
    constexpr std::string_view kGzipMagic = "\x1F\x8B", kZstdMagic = "\x28\xB5\x2F\xFD";
    // Frames without data have the magic numbers 0x184D2A50 to 0x184D2A5F, little-endian; a file may begin with one.
    constexpr std::string_view kSkippableTail = "\x2A\x4D\x18";
    const std::string_view head = input_.peek(kZstdMagic.size());
    const bool skippable = head.size() == kZstdMagic.size() && head.ends_with(kSkippableTail) &&
                           (static_cast<unsigned char>(head[0]) & 0xF0) == 0x50;
    const bool gzip = head.starts_with(kGzipMagic), zstd = head == kZstdMagic || skippable;
    if ((path.ends_with(".gz") && !gzip) || (path.ends_with(".zst") && !zstd)) {
      fail("input", "a file named .gz or .zst must hold gzip or zstd data, got {}, which is {}", path,
           gzip || zstd ? "packed otherwise" : "empty or not compressed");
    }
    if (gzip) unpacker_ = std::make_unique<GzipBytes>();
    if (zstd) unpacker_ = std::make_unique<ZstdBytes>();
  }

  // The next bytes, valid until the next call; empty at the end. Throws Error, naming the file, if it fails to read, is
  // damaged or ends early.
  std::string_view next() {
    if (unpacker_) return unpacker_->next(input_);
    input_.fill();
    const std::string_view bytes = input_.rest();
    input_.take(bytes.size());
    return bytes;
  }
  int64_t bytes_read() const { return input_.bytes_read(); }  // before decompression

 private:
  RawInput input_;
  std::unique_ptr<Unpacker> unpacker_;  // null: the bytes are not compressed
};

}  // namespace rf::data
