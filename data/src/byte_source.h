// The bytes of a file, a pipe or standard input, unpacked on the way: gzip (RFC 1952, also several members, zero bytes
// after the last) and zstd (RFC 8878, several frames, windows up to 2 GiB). Memory: the buffers, and zstd's window.
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
  // Packed when the first bytes say so; a name that ends in .gz or .zst must keep its word. Throws Error.
  explicit ByteSource(const std::string& path);
  ~ByteSource();

  // The next bytes, valid until the next call; empty at the end. Throws Error, naming the file, for one that fails to
  // read, is damaged or ends early.
  std::string_view next();
  int64_t bytes_read() const;  // packed

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rf::data
