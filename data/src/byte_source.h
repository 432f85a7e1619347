// The bytes of a file, a pipe or standard input, decompressed while they are read: gzip (RFC 1952, also several
// members, zero bytes after the last) and zstd (RFC 8878, several frames, windows up to 2 GiB). Memory: the buffers,
// and zstd's window.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace rf::data {

inline constexpr const char* kStandardInput = "-";
std::string source_name(const std::string& path);  // for messages: the path, or "standard input"

class ByteSource {
 public:
  // The first bytes decide whether the data are compressed. Throws Error if a file named .gz or .zst is not.
  explicit ByteSource(const std::string& path);
  ~ByteSource();

  // The next bytes, valid until the next call; empty at the end. Throws Error, naming the file, if it fails to read, is
  // damaged or ends early.
  std::string_view next();
  int64_t bytes_read() const;  // before decompression

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rf::data
