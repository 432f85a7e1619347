// Writer of safetensors files (R-HF-01). Tensors keep the given order, but wider elements come first, so every tensor
// begins at a multiple of its element size, without gaps.
#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "extent.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/printable.h"
#include "rf/io/safetensors.h"

namespace rf::io {
namespace {

constexpr size_t kTensorAlignment = 8;

std::string quoted(const std::string& text, const std::string& path) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::type_error&) {
    fail(path, "names and metadata must be UTF-8, got {}", printable(text));
  }
}

void check(const std::vector<const TensorView*>& tensors, const std::string& path) {
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
  if (text.size() > kMaxSafetensorsHeaderBytes) {
    fail(path, "header length must be at most {} bytes, got {}", kMaxSafetensorsHeaderBytes, text.size());
  }
  return text;
}

}  // namespace

void write_safetensors(const std::string& path, const std::vector<TensorView>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<const TensorView*> order;
  for (const TensorView& tensor : tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(),
                   [](const TensorView* a, const TensorView* b) { return size_of(a->dtype) > size_of(b->dtype); });
  check(order, path);
  const std::string header = header_of(order, metadata, path);
  const uint64_t length = header.size();

  AtomicFile file(path);
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(header);
  for (const TensorView* tensor : order) file.write(tensor->data);
  file.commit();
}

}  // namespace rf::io
