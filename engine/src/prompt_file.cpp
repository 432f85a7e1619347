// Keys and values of a prompt in a file (prompt_file.h).
#include "prompt_file.h"

#include <algorithm>
#include <cstring>

#include "file_hash.h"
#include "rf/io/error.h"
#include "rf/io/printable.h"

namespace rf::engine {

namespace {

constexpr const char *kIds = "ids", *kDataHash = "data_hash";

io::DType dtype_of(const KeyValueCache::Shape& shape) {
  if (shape.type == RF_CACHE_INT8) return io::DType::kI8;
  return shape.row_bytes() == 2 * shape.row() ? io::DType::kBF16 : io::DType::kF32;
}

// Facts about the cache's form too.
PromptFacts with_form(PromptFacts facts, const KeyValueCache::Shape& shape) {
  const io::DType dtype = dtype_of(shape);
  facts["cache_precision"] = dtype == io::DType::kI8 ? "int8" : dtype == io::DType::kBF16 ? "bfloat16" : "float32";
  return facts;
}

struct HeadRows {
  std::string name;
  char* data;  // of sequence 0
};

std::vector<HeadRows> head_rows(const KeyValueCache& cache) {
  const KeyValueCache::Shape& shape = cache.shape();
  std::vector<HeadRows> rows;
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    for (int64_t head = 0; head < shape.heads; ++head) {
      const int64_t offset = head * shape.capacity * shape.row_bytes();
      rows.push_back({fmt::format("{}.{}.keys", layer, head), cache.keys(layer, 0) + offset});
      rows.push_back({fmt::format("{}.{}.values", layer, head), cache.values(layer, 0) + offset});
    }
  }
  return rows;
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// In the order of their names: a file may have another.
std::string hash_of(std::vector<io::TensorView> tensors) {
  std::ranges::sort(tensors, {}, &io::TensorView::name);
  FileHash hash;
  for (const io::TensorView& tensor : tensors) {
    hash.add_text(tensor.name);
    hash.add_text(text_of(tensor.data));
  }
  return hash.hex();
}

}  // namespace

PromptFile::PromptFile(const std::string& path, const PromptFacts& facts, const KeyValueCache& cache,
                       int64_t vocab_size)
    : file_(path) {
  PromptFacts given = file_.metadata();
  if (given["format"] != facts.at("format")) {
    fail(path, "a prompt cache must be a file that this version's --prompt-cache wrote, got {}",
         given["format"].empty() ? "another" : io::printable(given["format"]));
  }
  for (const auto& [key, value] : with_form(facts, cache.shape())) {
    if (given[key] != value) {
      fail(path, "a prompt cache must have {} {}, that of this call, got {}", key, value,
           given[key].empty() ? "none" : io::printable(given[key]));
    }
  }
  if (given[kDataHash] != hash_of(file_.tensors()))
    fail(path, "a prompt cache must have the data of its {}, got others: it is damaged", kDataHash);
  const io::TensorView* const ids = file_.find(kIds);
  const std::vector<HeadRows> rows = head_rows(cache);
  const int64_t tokens = ids == nullptr || ids->shape.size() != 1 ? 0 : ids->shape[0];
  bool fits = tokens > 0 && ids->dtype == io::DType::kI32 && file_.tensors().size() == rows.size() + 1;
  for (const HeadRows& each : rows) {
    const io::TensorView* const found = file_.find(each.name);
    fits = fits && found != nullptr && found->dtype == dtype_of(cache.shape()) &&
           found->shape == std::vector<int64_t>{tokens, cache.row()};
  }
  if (!fits) fail(path, "a prompt cache must have ids and the keys and values of each layer and head, got others");
  ids_.resize(static_cast<size_t>(tokens));
  std::memcpy(ids_.data(), ids->data.data(), ids->data.size());
  if (std::ranges::any_of(ids_, [vocab_size](int32_t id) { return id < 0 || id >= vocab_size; }))
    fail(path, "a prompt cache must have tokens of the vocabulary, got others");
}

void PromptFile::copy_to(KeyValueCache& cache, int64_t tokens) const {
  const auto bytes = static_cast<size_t>(tokens * cache.shape().row_bytes());
  for (const HeadRows& each : head_rows(cache)) std::memcpy(each.data, file_.find(each.name)->data.data(), bytes);
  cache.append(0, ids().first(static_cast<size_t>(tokens)));
}

void write_prompt_file(const std::string& path, const PromptFacts& facts, const KeyValueCache& cache, int64_t tokens) {
  const auto ids = std::as_bytes(cache.ids(0).first(static_cast<size_t>(tokens)));
  const auto bytes = static_cast<size_t>(tokens * cache.shape().row_bytes());
  std::vector<io::TensorView> tensors = {{kIds, io::DType::kI32, {tokens}, ids}};
  for (const HeadRows& each : head_rows(cache)) {
    const std::span data(reinterpret_cast<const std::byte*>(each.data), bytes);
    tensors.push_back({each.name, dtype_of(cache.shape()), {tokens, cache.row()}, data});
  }
  PromptFacts all = with_form(facts, cache.shape());
  all[kDataHash] = hash_of(tensors);
  io::write_safetensors(path, tensors, all);
}

}  // namespace rf::engine
