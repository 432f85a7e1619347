// Safetensors files (R-HF-01):
//   u64 n | n bytes of JSON | data        JSON: {"name": {"dtype", "shape", "data_offsets": [begin, end]},
//                                                "__metadata__": {str: str}}
// The header is read by SAX events into entries only, which bounds its memory by the file's size and avoids recursion.
// Extents are sorted and must tile the data exactly. No type conversion, no pickles. The writer keeps the given order
// of tensors, but puts wider elements first, so every tensor begins at a multiple of its element size, without gaps.
#include <algorithm>
#include <bit>
#include <cstring>
#include <set>
#include <utility>

#include "extent.h"
#include "json_sax.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/printable.h"
#include "rf/io/safetensors.h"

static_assert(std::endian::native == std::endian::little, "tensor data are mapped without conversion");

namespace rf::io {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr std::string_view kMetadataKey = "__metadata__";

struct Entry {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::vector<int64_t> offsets;
};

struct Header {
  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;
};

// Accepts exactly the format's grammar: objects two deep, arrays of non-negative integers in the two fields that have
// them.
class HeaderHandler final : public JsonHandler {
 public:
  using JsonHandler::JsonHandler;
  Header take() { return std::move(header_); }

  bool null() override { reject("null"); }
  bool boolean(bool) override { reject("a boolean"); }
  bool number_integer(number_integer_t value) override { reject(fmt::format("{}", value)); }
  bool number_float(number_float_t, const string_t& text) override { reject(escaped(text, 40)); }

  bool number_unsigned(number_unsigned_t value) override {
    if (array_ == nullptr) reject(fmt::format("{}", value));
    if (value > static_cast<uint64_t>(INT64_MAX))
      source_.fail_here("{} must hold integers below 2^63, got {}", place(), value);
    const size_t limit = array_ == &entry_.shape ? kMaxRank : 2;
    if (array_->size() == limit) source_.fail_here("{} must hold at most {} numbers, got more", place(), limit);
    array_->push_back(static_cast<int64_t>(value));
    return true;
  }

  bool string(string_t& value) override {
    if (level_ == Level::kMetadata) {
      header_.metadata.emplace(key_, std::move(value));
    } else if (level_ == Level::kTensor && array_ == nullptr && key_ == "dtype") {
      entry_.dtype = std::move(value);
    } else {
      reject("a string");
    }
    return true;
  }

  bool start_object(size_t) override {
    if (level_ == Level::kFile) {
      level_ = Level::kTop;
    } else if (level_ == Level::kTop) {
      level_ = entry_.name == kMetadataKey ? Level::kMetadata : Level::kTensor;
      fields_.clear();
    } else {
      reject("an object");
    }
    return true;
  }

  bool end_object() override {
    if (level_ == Level::kTensor) finish_tensor();
    level_ = level_ == Level::kTop ? Level::kFile : Level::kTop;
    return true;
  }

  bool start_array(size_t) override {
    if (level_ != Level::kTensor || array_ != nullptr || (key_ != "shape" && key_ != "data_offsets"))
      reject("an array");
    array_ = key_ == "shape" ? &entry_.shape : &entry_.offsets;
    return true;
  }

  bool end_array() override {
    array_ = nullptr;
    return true;
  }

  bool key(string_t& name) override {
    if (level_ == Level::kTop) {
      if (!names_.insert(name).second) source_.fail_here("tensor names must be unique, got {} twice", printable(name));
      entry_ = Entry{};
      entry_.name = std::move(name);
      return true;
    }
    if (level_ == Level::kTensor && name != "dtype" && name != "shape" && name != "data_offsets") {
      source_.fail_here("tensor {} must have the keys dtype, shape and data_offsets, got {}", printable(entry_.name),
                        printable(name));
    }
    if (!fields_.insert(name).second)
      source_.fail_here("keys of {} must be unique, got {} twice", printable(entry_.name), printable(name));
    key_ = std::move(name);
    return true;
  }

 private:
  enum class Level { kFile, kTop, kTensor, kMetadata };

  std::string place() const {
    switch (level_) {
      case Level::kFile: return "the header";
      case Level::kTop: return fmt::format("tensor {}", printable(entry_.name));
      default: return fmt::format("{} of {}", printable(key_), printable(entry_.name));
    }
  }

  std::string_view expected() const {
    if (level_ == Level::kFile || level_ == Level::kTop) return "an object";
    if (level_ == Level::kMetadata || key_ == "dtype") return "a string";
    return array_ == nullptr ? "an array" : "an integer of at least 0";
  }

  [[noreturn]] void reject(std::string_view got) const {
    source_.fail_here("{} must be {}, got {}", place(), expected(), got);
  }

  void finish_tensor() {
    for (const char* field : {"dtype", "shape", "data_offsets"}) {
      if (!fields_.contains(field)) source_.fail_here("tensor {} must have a {}", printable(entry_.name), field);
    }
    if (entry_.offsets.size() != 2) {
      source_.fail_here("data_offsets of {} must be [begin, end], got {} numbers", printable(entry_.name),
                        entry_.offsets.size());
    }
    header_.entries.push_back(std::move(entry_));
  }

  Header header_;
  std::set<std::string> names_;
  std::set<std::string> fields_;  // keys seen in the open inner object
  Entry entry_;                   // the tensor being read
  std::string key_;               // in the inner object
  std::vector<int64_t>* array_ = nullptr;
  Level level_ = Level::kFile;
};

// The JSON text, after the checks on its length.
std::string_view header_text(std::span<const std::byte> bytes, const std::string& path) {
  if (bytes.size() < kLengthBytes)
    fail(path, "a safetensors file begins with 8 bytes of header length, got {} bytes", bytes.size());
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  if (length > kMaxSafetensorsHeaderBytes)
    fail(path, "header length must be at most {} bytes, got {}", kMaxSafetensorsHeaderBytes, length);
  if (length > bytes.size() - kLengthBytes)
    fail(path, "header must end within the file of {} bytes, got a header of {} bytes", bytes.size(), length);
  return {reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, static_cast<size_t>(length)};
}

TensorView view_of(const Entry& entry, std::span<const std::byte> data, const std::string& path) {
  const std::string where = fmt::format("{}: tensor {}", path, printable(entry.name));
  const DType dtype = dtype_of_safetensors_name(entry.dtype, where);
  const int64_t begin = entry.offsets[0], end = entry.offsets[1];
  if (begin > end || static_cast<uint64_t>(end) > data.size())
    fail(where, "data_offsets must be ordered and within the {} bytes of data, got [{}, {}]", data.size(), begin, end);
  const std::optional<int64_t> bytes = extent_bytes(entry.shape, dtype);
  const std::string shape = fmt::format("[{}]", fmt::join(entry.shape, ", "));
  if (!bytes) fail(where, "shape times element size must fit 63 bits, got {} of {}", shape, entry.dtype);
  if (*bytes != end - begin)
    fail(where, "{} of {} must take {} bytes, got data_offsets [{}, {}]", shape, entry.dtype, *bytes, begin, end);
  return {entry.name, dtype, entry.shape, data.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin))};
}

// Sorted extents must follow each other from 0 to the end of the data.
void check_tiling(const std::vector<Entry>& sorted, size_t data_bytes, const std::string& path) {
  int64_t at = 0;
  for (const Entry& entry : sorted) {
    const int64_t begin = entry.offsets[0];
    if (begin != at) {
      fail(path, "tensors must cover the data without {}, got {} at {} where {} was expected",
           begin < at ? "overlap" : "holes", printable(entry.name), begin, at);
    }
    at = entry.offsets[1];
  }
  if (static_cast<uint64_t>(at) != data_bytes)
    fail(path, "tensors must cover all {} bytes of data, got {}", data_bytes, at);
}

constexpr size_t kTensorAlignment = 8;

std::string quoted(const std::string& text, const std::string& path) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::type_error&) {
    fail(path, "names and metadata must be UTF-8, got {}", printable(text));
  }
}

void check_tensors(const std::vector<const TensorView*>& tensors, const std::string& path) {
  std::set<std::string> names;
  for (const TensorView* tensor : tensors) {
    const std::string where = fmt::format("{}: tensor {}", path, printable(tensor->name));
    if (tensor->name == "__metadata__") fail(where, "the name is the format's own");
    if (!names.insert(tensor->name).second) fail(where, "tensor names must be unique, got this one twice");
    const std::optional<int64_t> bytes = extent_bytes(tensor->shape, tensor->dtype);
    if (!bytes || static_cast<uint64_t>(*bytes) != tensor->data.size()) {
      fail(where, "data must have the bytes of [{}] {}, got {}", fmt::join(tensor->shape, ", "),
           safetensors_name(tensor->dtype), tensor->data.size());
    }
  }
}

std::string header_of(const std::vector<const TensorView*>& tensors, const std::map<std::string, std::string>& metadata,
                      const std::string& path) {
  std::string text = "{";
  const auto separate = [&text] {
    if (text.back() != '{') text += ',';
  };
  if (!metadata.empty()) {
    text += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      separate();
      text += quoted(key, path) + ":" + quoted(value, path);
    }
    text += '}';
  }
  size_t at = 0;
  for (const TensorView* tensor : tensors) {
    separate();
    text += fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", quoted(tensor->name, path),
                        safetensors_name(tensor->dtype), fmt::join(tensor->shape, ","), at, at + tensor->data.size());
    at += tensor->data.size();
  }
  text += '}';
  text.append((kTensorAlignment - text.size() % kTensorAlignment) % kTensorAlignment, ' ');
  if (text.size() > kMaxSafetensorsHeaderBytes)
    fail(path, "header length must be at most {} bytes, got {}", kMaxSafetensorsHeaderBytes, text.size());
  return text;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(std::make_unique<MappedFile>(path)) {
  const std::string_view text = header_text(file_->bytes(), path);
  if (!text.starts_with('{')) fail(path, "header must begin with {{, got {}", printable(text.substr(0, 8)));
  const std::string where = path + ": header";
  JsonText source(text, where);
  HeaderHandler handler(source);
  run_sax(source, handler);
  Header header = handler.take();
  metadata_ = std::move(header.metadata);

  const std::span<const std::byte> data = file_->bytes().subspan(kLengthBytes + text.size());
  // Stable: empty tensors at one place keep the header's order.
  std::stable_sort(header.entries.begin(), header.entries.end(),
                   [](const Entry& a, const Entry& b) { return a.offsets < b.offsets; });
  tensors_.reserve(header.entries.size());
  for (const Entry& entry : header.entries) tensors_.push_back(view_of(entry, data, path));
  check_tiling(header.entries, data.size(), path);
  for (size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
}

SafetensorsFile::~SafetensorsFile() = default;
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;

const TensorView* SafetensorsFile::find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

void write_safetensors(const std::string& path, const std::vector<TensorView>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<const TensorView*> order;
  for (const TensorView& tensor : tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(),
                   [](const TensorView* a, const TensorView* b) { return size_of(a->dtype) > size_of(b->dtype); });
  check_tensors(order, path);
  const std::string header = header_of(order, metadata, path);
  const uint64_t length = header.size();

  AtomicFile file(path);
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(header);
  for (const TensorView* tensor : order) file.write(tensor->data);
  file.commit();
}

}  // namespace rf::io
