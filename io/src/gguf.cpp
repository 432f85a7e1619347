// Reader of GGUF (gguf.h).
#include "rf/io/gguf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string_view>

#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/gguf_blocks.h"
#include "rf/io/printable.h"
#include "rf/io/utf8.h"

static_assert(std::endian::native == std::endian::little, "values are copied without conversion");

namespace rf::io {
namespace {

// "F32, F16, .."
std::string readable_gguf_types() {
  std::string names;
  for (const GgufBlock& block : gguf_blocks()) names += (names.empty() ? "" : ", ") + std::string(block.name);
  return names;
}

// Types of values, by their numbers in the format.
enum GgufType : uint32_t {
  kGgufU8,
  kGgufI8,
  kGgufU16,
  kGgufI16,
  kGgufU32,
  kGgufI32,
  kGgufF32,
  kGgufBool,
  kGgufString,
  kGgufArray,
  kGgufU64,
  kGgufI64,
  kGgufF64,
  kGgufTypes
};
constexpr std::string_view kGgufMagic = "GGUF";
constexpr size_t kGgufBytes[kGgufTypes] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};  // 0: of any size
constexpr uint64_t kMaxKeptNumbers = 4096;
constexpr uint32_t kMaxGgufRank = 8;
constexpr int kMaxGgufDepth = 4;

// The bytes from an offset on; every read is checked.
class GgufBytes {
 public:
  GgufBytes(std::span<const std::byte> bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  size_t at() const { return at_; }
  size_t left() const { return bytes_.size() - at_; }

  void need(uint64_t bytes, std::string_view what) const {
    if (bytes > left())
      fail(path_, "{} must lie within the file of {} bytes, got {} bytes at {}", what, bytes_.size(), bytes, at_);
  }
  void skip(uint64_t bytes, std::string_view what) {
    need(bytes, what);
    at_ += static_cast<size_t>(bytes);
  }
  template <typename T>
  T number(std::string_view what) {
    skip(sizeof(T), what);
    T value;
    std::memcpy(&value, bytes_.data() + at_ - sizeof(T), sizeof(T));
    return value;
  }
  std::string_view text(std::string_view what) {
    const auto length = number<uint64_t>(what);
    need(length, what);
    const std::string_view found(reinterpret_cast<const char*>(bytes_.data()) + at_, static_cast<size_t>(length));
    at_ += found.size();
    return found;
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& path_;
  size_t at_ = 0;
};

// The text as JSON can hold it.
std::string as_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Decoded next = decode_utf8(text.substr(at));
    if (!next.valid) return escaped(text, text.size());
    at += static_cast<size_t>(next.length);
  }
  return std::string(text);
}

class GgufReader {
 public:
  GgufReader(std::span<const std::byte> bytes, const std::string& path) : in_(bytes, path), path_(path) {}

  uint32_t version() {
    if (in_.left() < kGgufMagic.size())
      fail(path_, "a GGUF file must begin with {}, got {} bytes", kGgufMagic, in_.left());
    std::array<char, kGgufMagic.size()> magic{};
    for (char& each : magic) each = in_.number<char>("the first four bytes");
    const std::string_view found(magic.data(), magic.size());
    if (found != kGgufMagic) fail(path_, "a GGUF file must begin with {}, got {}", kGgufMagic, printable(found));
    const auto version = in_.number<uint32_t>("the version");
    constexpr uint32_t kLowHalf = 0xFFFF;
    if (version != 0 && (version & kLowHalf) == 0)
      fail(path_, "a GGUF file must be little-endian, got a big-endian one of version {}", __builtin_bswap32(version));
    if (version != 2 && version != 3) fail(path_, "the version of a GGUF file must be 2 or 3, got {}", version);
    return version;
  }

  void counts() {
    tensors_ = in_.number<uint64_t>("the number of tensors");
    pairs_ = in_.number<uint64_t>("the number of keys");
  }

  nlohmann::json metadata() {
    nlohmann::json object = nlohmann::json::object();
    for (uint64_t i = 0; i < pairs_; ++i) {
      const std::string key = as_utf8(in_.text("a key"));
      const auto type = in_.number<uint32_t>("the type of a value");
      if (object.contains(key)) fail(path_, "keys must be unique, got a second {}", printable(key));
      if (type == kGgufArray) arrays_[key] = in_.at();
      object[key] = value(type, "the value of " + printable(key), 0);
    }
    return object;
  }

  std::vector<GgufTensor> tensors() {
    std::vector<GgufTensor> found;
    std::set<std::string> names;
    for (uint64_t i = 0; i < tensors_; ++i) {
      GgufTensor tensor;
      tensor.name = as_utf8(in_.text("the name of a tensor"));
      if (!names.insert(tensor.name).second)
        fail(path_, "tensor names must be unique, got {} twice", printable(tensor.name));
      const std::string what = "the entry of tensor " + printable(tensor.name);
      const auto rank = in_.number<uint32_t>(what);
      if (rank > kMaxGgufRank) fail(path_, "{} must have a rank of at most {}, got {}", what, kMaxGgufRank, rank);
      for (uint32_t d = 0; d < rank; ++d) tensor.shape.push_back(in_.number<uint64_t>(what));
      tensor.type = in_.number<uint32_t>(what);
      tensor.offset = in_.number<uint64_t>(what);
      found.push_back(std::move(tensor));
    }
    return found;
  }

  size_t at() const { return in_.at(); }
  const std::map<std::string, size_t>& arrays() const { return arrays_; }

 private:
  nlohmann::json value(uint32_t type, const std::string& what, int depth) {
    switch (type) {
      case kGgufU8: return in_.number<uint8_t>(what);
      case kGgufI8: return in_.number<int8_t>(what);
      case kGgufU16: return in_.number<uint16_t>(what);
      case kGgufI16: return in_.number<int16_t>(what);
      case kGgufU32: return in_.number<uint32_t>(what);
      case kGgufI32: return in_.number<int32_t>(what);
      case kGgufF32: return static_cast<double>(in_.number<float>(what));
      case kGgufBool: return in_.number<uint8_t>(what) != 0;
      case kGgufString: return as_utf8(in_.text(what));
      case kGgufArray: return array(what, depth);
      case kGgufU64: return in_.number<uint64_t>(what);
      case kGgufI64: return in_.number<int64_t>(what);
      case kGgufF64: return in_.number<double>(what);
      default: fail(path_, "{} must have a type from 0 to {}, got {}", what, kGgufTypes - 1, type);
    }
  }

  nlohmann::json array(const std::string& what, int depth) {
    if (depth == kMaxGgufDepth) fail(path_, "{} must be arrays at most {} deep, got more", what, kMaxGgufDepth);
    const auto type = in_.number<uint32_t>(what);
    const auto count = in_.number<uint64_t>(what);
    if (type >= kGgufTypes) fail(path_, "{} must have a type from 0 to {}, got {}", what, kGgufTypes - 1, type);
    const size_t bytes = kGgufBytes[type];
    if (bytes != 0) {
      if (count > in_.left() / bytes)
        fail(path_, "{} must lie within the file, got an array of {} with {} bytes left", what, count, in_.left());
      if (count > kMaxKeptNumbers) {
        in_.skip(count * bytes, what);
        return {{"count", count}};
      }
      nlohmann::json numbers = nlohmann::json::array();
      for (uint64_t i = 0; i < count; ++i) numbers.push_back(value(type, what, depth));
      return numbers;
    }
    for (uint64_t i = 0; i < count; ++i) {
      if (type == kGgufString) {
        in_.text(what);
      } else {
        array(what, depth + 1);
      }
    }
    return {{"count", count}};
  }

  GgufBytes in_;
  const std::string& path_;
  uint64_t tensors_ = 0, pairs_ = 0;
  std::map<std::string, size_t> arrays_;
};

// Offset of the data.
size_t data_start(size_t end, const nlohmann::json& metadata, const std::string& path) {
  uint64_t alignment = 32;
  if (const auto given = metadata.find("general.alignment"); given != metadata.end()) {
    if (!given->is_number_unsigned()) fail(path, "general.alignment must be an integer, got {}", given->dump());
    alignment = given->get<uint64_t>();
  }
  constexpr uint64_t kMaxAlignment = uint64_t{1} << 30;
  if (!std::has_single_bit(alignment) || alignment > kMaxAlignment)
    fail(path, "general.alignment must be a power of two up to 2^30, got {}", alignment);
  return (end + alignment - 1) / alignment * alignment;
}

}  // namespace

namespace {

constexpr const char *kSplitCount = "split.count", *kSplitNumber = "split.no", *kSplitTensors = "split.tensors.count";

// A key of llama.cpp's gguf-split, from `low` to `high`; nullopt if it is absent.
std::optional<uint64_t> split_key(const nlohmann::json& metadata, const char* key, uint64_t low, uint64_t high,
                                  const std::string& path) {
  const auto value = metadata.find(key);
  if (value == metadata.end()) return std::nullopt;
  if (!value->is_number_integer() || *value < low || *value > high)
    fail(path, "{} must be an integer from {} to {}, got {}", key, low, high, value->dump());
  return value->get<uint64_t>();
}

std::string part_suffix(uint64_t number, uint64_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", number + 1, count);
}

}  // namespace

// A mapped file and the contents of its header.
struct GgufFile::Part {
  Part(const std::string& name, uint32_t number) : path(name), file(name) {
    GgufReader reader(file.bytes(), path);
    version = reader.version();
    reader.counts();
    metadata = reader.metadata();
    arrays = reader.arrays();
    tensors = reader.tensors();
    for (GgufTensor& tensor : tensors) tensor.part = number;
    data = data_start(reader.at(), metadata, path);
  }

  std::string path;
  MappedFile file;
  uint32_t version = 0;
  nlohmann::json metadata;
  std::map<std::string, size_t> arrays;  // where their values begin
  std::vector<GgufTensor> tensors;       // until the file takes them
  size_t data = 0;                       // where the data begin
};

bool is_gguf_file(const std::string& path) {
  std::array<char, kGgufMagic.size()> bytes{};
  std::ifstream file(path, std::ios::binary);
  return file.read(bytes.data(), bytes.size()) && std::string_view(bytes.data(), bytes.size()) == kGgufMagic;
}

GgufFile::GgufFile(const std::string& path) : path_(path) {
  parts_.push_back(std::make_unique<Part>(path, 0));
  take_tensors(*parts_[0]);
  open_parts();
}

void GgufFile::open_parts() {
  constexpr uint64_t kMaxParts = 65535;
  const nlohmann::json& first = metadata();
  const uint64_t count = split_key(first, kSplitCount, 0, kMaxParts, path_).value_or(0);
  if (count <= 1) return;
  const uint64_t number = split_key(first, kSplitNumber, 0, count - 1, path_).value_or(0);
  const std::string suffix = part_suffix(number, count);
  if (!path_.ends_with(suffix))
    fail(path_, "the name of part {} of {} must end with {}, got another name", number + 1, count, suffix);
  const std::string prefix = path_.substr(0, path_.size() - suffix.size());
  if (number != 0) {
    fail(path_, "a model of several parts must be opened by the first, {}, got part {} of {}",
         prefix + part_suffix(0, count), number + 1, count);
  }
  for (uint64_t i = 1; i < count; ++i) {
    const std::string path = prefix + part_suffix(i, count);
    if (!has_file(path)) fail(path_, "a model of {} parts must have the part {}, got none", count, path);
    parts_.push_back(std::make_unique<Part>(path, static_cast<uint32_t>(i)));
    add_part(*parts_.back(), i);
  }
  std::map<std::string_view, const GgufTensor*> by_name;
  for (const GgufTensor& tensor : tensors_) {
    const auto [other, is_new] = by_name.emplace(tensor.name, &tensor);
    if (!is_new)
      fail(path_of(tensor), "a tensor must be in one part, got {} here and in {}", printable(tensor.name),
           path_of(*other->second));
  }
  const std::optional<uint64_t> stated = split_key(first, kSplitTensors, 0, INT32_MAX, path_);
  if (stated && *stated != tensors_.size())
    fail(path_, "the parts must have the {} tensors that {} states, got {}", *stated, kSplitTensors, tensors_.size());
}

void GgufFile::add_part(Part& part, uint64_t number) {
  const uint64_t stated = split_key(part.metadata, kSplitNumber, 0, UINT16_MAX, part.path).value_or(0);
  if (stated != number) fail(part.path, "{} of part {} must be {}, got {}", kSplitNumber, number + 1, number, stated);
  for (const auto& [key, value] : part.metadata.items()) {
    const auto first = metadata().find(key);
    const std::string own = value.dump(), other = first == metadata().end() ? "none" : first->dump();
    if (key != kSplitNumber && own != other) {
      fail(part.path, "keys of a part must equal those of the first part, got {} {} and {}", printable(key),
           printable(own), printable(other));
    }
  }
  take_tensors(part);
}

void GgufFile::take_tensors(Part& part) {
  check_overlaps(part);
  tensors_.insert(tensors_.end(), std::move_iterator(part.tensors.begin()), std::move_iterator(part.tensors.end()));
  part.tensors.clear();
}

const std::string& GgufFile::path_of(const GgufTensor& tensor) const { return parts_[tensor.part]->path; }
uint32_t GgufFile::version() const { return parts_[0]->version; }
const nlohmann::json& GgufFile::metadata() const { return parts_[0]->metadata; }

std::vector<std::string> GgufFile::paths() const {
  std::vector<std::string> paths;
  for (const auto& part : parts_) paths.push_back(part->path);
  return paths;
}

GgufFile::~GgufFile() = default;

const GgufTensor* GgufFile::find(const std::string& name) const {
  const auto found = std::ranges::find(tensors_, name, &GgufTensor::name);
  return found == tensors_.end() ? nullptr : &*found;
}

namespace {

// nullopt: more than fit into 64 bits.
std::optional<uint64_t> bytes_of(const GgufTensor& tensor, const GgufBlock& block) {
  uint64_t elements = 1, bytes = 0;
  for (const uint64_t extent : tensor.shape) {
    if (__builtin_mul_overflow(elements, extent, &elements)) return std::nullopt;
  }
  if (__builtin_mul_overflow(elements / block.elements, uint64_t{block.bytes}, &bytes)) return std::nullopt;
  return bytes;
}

// The end of a tensor's data; its start if the type or size is unknown.
uint64_t end_of(const GgufTensor& tensor) {
  const GgufBlock* const block = find_gguf_block(tensor.type);
  const std::optional<uint64_t> bytes = block == nullptr ? std::nullopt : bytes_of(tensor, *block);
  uint64_t end = 0;
  return !bytes || __builtin_add_overflow(tensor.offset, *bytes, &end) ? tensor.offset : end;
}

}  // namespace

void GgufFile::check_overlaps(const Part& part) {
  std::vector<const GgufTensor*> in_order;
  for (const GgufTensor& tensor : part.tensors) in_order.push_back(&tensor);
  std::ranges::stable_sort(in_order, {}, &GgufTensor::offset);
  const GgufTensor* furthest = nullptr;  // among the previous tensors
  for (const GgufTensor* tensor : in_order) {
    if (furthest != nullptr && end_of(*furthest) > tensor->offset && end_of(*tensor) > tensor->offset) {
      fail(part.path, "tensors must not overlap, got {} up to byte {} of the data and {} from byte {}",
           printable(furthest->name), end_of(*furthest), printable(tensor->name), tensor->offset);
    }
    if (furthest == nullptr || end_of(*tensor) > end_of(*furthest)) furthest = tensor;
  }
}

// Reads an array of the file again, and calls visit(bytes, type) for each element; false: of another type.
template <typename Visit>
void GgufFile::visit_array(const std::string& key, const char* elements, const Visit& visit) const {
  if (!metadata().contains(key)) return;
  const auto refuse = [&] { fail(path_, "{} must be an array of {}, got another value", printable(key), elements); };
  const auto at = parts_[0]->arrays.find(key);
  if (at == parts_[0]->arrays.end()) refuse();
  GgufBytes in(parts_[0]->file.bytes().subspan(at->second), path_);
  const auto type = in.number<uint32_t>("the type of an array");
  const auto count = in.number<uint64_t>("the count of an array");
  for (uint64_t i = 0; i < count; ++i) {
    if (!visit(in, type)) refuse();
  }
}

std::vector<std::string> GgufFile::strings(const std::string& key) const {
  std::vector<std::string> found;
  visit_array(key, "strings", [&](GgufBytes& in, uint32_t type) {
    if (type == kGgufString) found.emplace_back(in.text(key));
    return type == kGgufString;
  });
  return found;
}

std::vector<int64_t> GgufFile::integers(const std::string& key) const {
  std::vector<int64_t> found;
  visit_array(key, "32-bit integers", [&](GgufBytes& in, uint32_t type) {
    if (type == kGgufU32) found.push_back(in.number<uint32_t>(key));
    if (type == kGgufI32) found.push_back(in.number<int32_t>(key));
    return type == kGgufU32 || type == kGgufI32;
  });
  return found;
}

std::vector<float> GgufFile::reals(const std::string& key) const {
  std::vector<float> found;
  visit_array(key, "32-bit reals", [&](GgufBytes& in, uint32_t type) {
    if (type == kGgufF32) found.push_back(in.number<float>(key));
    return type == kGgufF32;
  });
  return found;
}

std::string GgufFile::array_bytes(const std::string& key) const {
  std::string found;
  visit_array(key, "bytes", [&](GgufBytes& in, uint32_t type) {
    if (type == kGgufU8 || type == kGgufI8) found.push_back(in.number<char>(key));
    return type == kGgufU8 || type == kGgufI8;
  });
  return found;
}

std::span<const std::byte> GgufFile::bytes(const GgufTensor& tensor) const {
  const Part& part = *parts_[tensor.part];
  const std::string what = "tensor " + printable(tensor.name);
  const GgufBlock* const block = find_gguf_block(tensor.type);
  if (block == nullptr)
    fail(part.path, "{} must be of type {}, got {}", what, readable_gguf_types(), gguf_type_name(tensor.type));
  if (const uint64_t row = tensor.shape.empty() ? 1 : tensor.shape[0]; row % block->elements != 0) {
    fail(part.path, "{} must have rows of whole blocks of {}, got {} elements of type {}", what, block->elements, row,
         block->name);
  }
  const std::optional<uint64_t> bytes = bytes_of(tensor, *block);
  if (!bytes) fail(part.path, "{} must fit into 64 bits, got more", what);
  const std::span<const std::byte> all = part.file.bytes();
  if (part.data > all.size() || tensor.offset > all.size() - part.data ||
      *bytes > all.size() - part.data - tensor.offset) {
    fail(part.path, "{} must lie within the file of {} bytes, got {} bytes at {} of the data", what, all.size(), *bytes,
         tensor.offset);
  }
  return all.subspan(part.data + static_cast<size_t>(tensor.offset), static_cast<size_t>(*bytes));
}

void GgufFile::check(const GgufTensor& tensor) const { bytes(tensor); }

void GgufFile::read(const GgufTensor& tensor, uint64_t begin, uint64_t count, float* to) const {
  const GgufBlock& block = *find_gguf_block(tensor.type);
  const std::byte* from = bytes(tensor).data() + begin / block.elements * block.bytes;
  for (uint64_t i = 0; i < count; i += block.elements, from += block.bytes) block.read(from, to + i);
}

std::vector<float> GgufFile::numbers(const GgufTensor& tensor) const {
  check(tensor);
  uint64_t elements = 1;
  for (const uint64_t extent : tensor.shape) elements *= extent;
  std::vector<float> numbers(static_cast<size_t>(elements));
  read(tensor, 0, elements, numbers.data());
  return numbers;
}

}  // namespace rf::io
