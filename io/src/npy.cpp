// NumPy .npy (format 1.0 to 3.0): "\x93NUMPY", major, minor, header length (u16 in version 1, else u32), a Python dict
// literal {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }, row-major little-endian data to the end of the
// file. Does not read Fortran order, big-endian, structured, object, complex, string or date arrays.
#include "rf/io/npy.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <optional>

#include "extent.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/printable.h"

namespace rf::io {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kPrefixBytes = kMagic.size() + 2;   // magic, major, minor
constexpr size_t kMaxHeaderBytes = size_t{1} << 16;  // plain arrays need less than 2 KiB
constexpr size_t kDataAlignment = 64;

struct Descr {
  std::string_view code;
  DType dtype;
};
constexpr Descr kDescrs[] = {
    {"b1", DType::kBool}, {"u1", DType::kU8},  {"i1", DType::kI8},  {"u2", DType::kU16},
    {"i2", DType::kI16},  {"u4", DType::kU32}, {"i4", DType::kI32}, {"u8", DType::kU64},
    {"i8", DType::kI64},  {"f2", DType::kF16}, {"f4", DType::kF32}, {"f8", DType::kF64},
};

DType dtype_of_descr(std::string_view descr, const std::string& path) {
  const char order = descr.empty() ? '\0' : descr[0];
  const std::string_view code = descr.substr(descr.empty() ? 0 : 1);
  for (const Descr& entry : kDescrs) {
    if (entry.code != code) continue;
    const bool one_byte = size_of(entry.dtype) == 1;
    if (order == '>' && !one_byte) fail(path, "data must be little-endian, got descr {}", printable(descr));
    if (order == '<' || order == '=' || one_byte) return entry.dtype;
  }
  if (code.starts_with('O')) fail(path, "object arrays hold pickles and are not read, got descr {}", printable(descr));
  fail(path, "descr must be a bool, integer or float type such as '<f4', got {}", printable(descr));
}

// The dict literal that NumPy writes: three known keys in any order, nested only in the shape.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  void parse() {
    expect('{');
    while (!accept('}')) {
      parse_item();
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (at_ != text_.size()) reject("the end of the header");
    if (!descr || !fortran_order || !shape) fail(path_, "header must have the keys descr, fortran_order and shape");
  }

  std::optional<std::string_view> descr;
  std::optional<bool> fortran_order;
  std::optional<std::vector<int64_t>> shape;

 private:
  void parse_item() {
    const std::string_view key = quoted();
    expect(':');
    if (key == "descr" && !descr) {
      skip_space();
      if (at_ < text_.size() && text_[at_] == '[') fail(path_, "structured arrays are not read, got a list as descr");
      descr = quoted();
    } else if (key == "fortran_order" && !fortran_order) {
      fortran_order = boolean();
    } else if (key == "shape" && !shape) {
      shape = tuple();
    } else {
      fail(path_, "header must have the keys descr, fortran_order and shape once, got {}", printable(key));
    }
  }

  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }
  bool accept(char c) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) reject(fmt::format("'{}'", c));
  }
  [[noreturn]] void reject(std::string_view expected) const {
    fail(path_, "header must be NumPy's dict, got {} where {} was expected", printable(text_.substr(at_, 16)),
         expected);
  }

  std::string_view quoted() {
    skip_space();
    if (at_ >= text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) reject("a quoted string");
    const size_t end = text_.find(text_[at_], at_ + 1);
    if (end == std::string_view::npos) reject("a closed string");
    const std::string_view value = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return value;
  }

  bool boolean() {
    skip_space();
    for (const std::string_view word : {"True", "False"}) {
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return word == "True";
      }
    }
    reject("True or False");
  }

  std::vector<int64_t> tuple() {
    std::vector<int64_t> dims;
    expect('(');
    while (!accept(')')) {
      skip_space();
      int64_t dim = 0;
      const char* const begin = text_.data() + at_;
      const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), dim);
      if (error != std::errc{} || dim < 0) reject("a dimension");
      if (dims.size() == kMaxRank) fail(path_, "shape must have at most {} dimensions, got more", kMaxRank);
      dims.push_back(dim);
      at_ += static_cast<size_t>(end - begin);
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return dims;
  }

  std::string_view text_;
  const std::string& path_;
  size_t at_ = 0;
};

struct Parts {
  std::string_view header;
  std::span<const std::byte> data;
};

Parts split(std::span<const std::byte> bytes, const std::string& path) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!text.starts_with(kMagic)) fail(path, "a .npy file begins with \\x93NUMPY, got {}", printable(text.substr(0, 6)));
  if (text.size() < kPrefixBytes) fail(path, "file ends within the format version, got {} bytes", text.size());
  const int major = static_cast<unsigned char>(text[kMagic.size()]);
  if (major < 1 || major > 3) fail(path, "format version must be 1, 2 or 3, got {}", major);
  const size_t length_bytes = major == 1 ? 2 : 4;
  if (text.size() < kPrefixBytes + length_bytes)
    fail(path, "file ends within the header length, got {} bytes", text.size());
  uint32_t length = 0;
  std::memcpy(&length, text.data() + kPrefixBytes, length_bytes);
  const size_t begin = kPrefixBytes + length_bytes;
  if (length > kMaxHeaderBytes) fail(path, "header must be at most {} bytes, got {}", kMaxHeaderBytes, length);
  if (length > text.size() - begin)
    fail(path, "header must end within the file of {} bytes, got a header of {} bytes", text.size(), length);
  return {text.substr(begin, length), bytes.subspan(begin + length)};
}

template <typename T>
std::vector<int64_t> widen(const std::vector<std::byte>& data, const std::string& where) {
  std::vector<int64_t> values(data.size() / sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    T value;
    std::memcpy(&value, data.data() + i * sizeof(T), sizeof(T));
    if constexpr (sizeof(T) == sizeof(int64_t) && std::is_unsigned_v<T>) {
      if (value > static_cast<T>(std::numeric_limits<int64_t>::max()))
        fail(where, "integers must be below 2^63, got {} at element {}", value, i);
    }
    values[i] = static_cast<int64_t>(value);
  }
  return values;
}

}  // namespace

std::vector<int64_t> NpyArray::to_int64(const std::string& where) const {
  switch (dtype) {
    case DType::kBool:
    case DType::kU8: return widen<uint8_t>(data, where);
    case DType::kI8: return widen<int8_t>(data, where);
    case DType::kU16: return widen<uint16_t>(data, where);
    case DType::kI16: return widen<int16_t>(data, where);
    case DType::kU32: return widen<uint32_t>(data, where);
    case DType::kI32: return widen<int32_t>(data, where);
    case DType::kU64: return widen<uint64_t>(data, where);
    case DType::kI64: return widen<int64_t>(data, where);
    default: fail(where, "must be an integer or bool array, got {}", safetensors_name(dtype));
  }
}

MappedNpy::MappedNpy(const std::string& path) : file_(std::make_unique<MappedFile>(path)) {
  const auto [header, data] = split(file_->bytes(), path);
  HeaderParser parser(header, path);
  parser.parse();
  dtype_ = dtype_of_descr(*parser.descr, path);
  shape_ = *parser.shape;
  data_ = data;
  // Fortran and C order are the same bytes for arrays with at most one dimension.
  if (*parser.fortran_order && shape_.size() > 1)
    fail(path, "array must be in C order, got Fortran order (save numpy.ascontiguousarray of it)");
  const std::optional<int64_t> bytes = extent_bytes(shape_, dtype_);
  if (!bytes || static_cast<uint64_t>(*bytes) != data_.size()) {
    fail(path, "data must have the bytes of shape ({}) of {}, got {}", fmt::join(shape_, ", "),
         printable(*parser.descr), data_.size());
  }
}

MappedNpy::~MappedNpy() = default;

NpyArray read_npy(const std::string& path) {
  const MappedNpy mapped(path);
  const std::span<const std::byte> data = mapped.data();
  if (mapped.dtype() == DType::kBool &&
      std::any_of(data.begin(), data.end(), [](std::byte b) { return b > std::byte{1}; })) {
    fail(path, "bool arrays must hold 0 and 1 only, got another byte");
  }
  return {mapped.dtype(), mapped.shape(), {data.begin(), data.end()}};
}

std::string npy_header(const std::string& path, DType dtype, const std::vector<int64_t>& shape) {
  const auto* const entry =
      std::find_if(std::begin(kDescrs), std::end(kDescrs), [dtype](const Descr& d) { return d.dtype == dtype; });
  if (entry == std::end(kDescrs)) fail(path, "the .npy format has no type for {}", safetensors_name(dtype));
  std::string dict =
      fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}{}), }}", size_of(dtype) == 1 ? '|' : '<',
                  entry->code, fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  const size_t fixed = kPrefixBytes + sizeof(uint16_t) + 1;  // and the newline that ends the header
  dict.append((kDataAlignment - (fixed + dict.size()) % kDataAlignment) % kDataAlignment, ' ');
  dict += '\n';
  const auto length = static_cast<uint16_t>(dict.size());  // at most kMaxRank dimensions of 20 characters
  std::string header(kMagic);
  header += std::string_view("\x01\x00", 2);
  header.append(reinterpret_cast<const char*>(&length), sizeof length);
  return header + dict;
}

void write_npy(const std::string& path, DType dtype, const std::vector<int64_t>& shape,
               std::span<const std::byte> data) {
  const std::string header = npy_header(path, dtype, shape);
  const std::optional<int64_t> bytes = extent_bytes(shape, dtype);
  if (!bytes || static_cast<uint64_t>(*bytes) != data.size()) {
    fail(path, "data must have the bytes of shape ({}) of {}, got {}", fmt::join(shape, ", "), safetensors_name(dtype),
         data.size());
  }
  AtomicFile file(path);
  file.write(header);
  file.write(data);
  file.commit();
}

}  // namespace rf::io
