// Reading and checking weights (see the header).
#include "weights.h"

#include <fmt/ranges.h>
#include <algorithm>

#include <atomic>
#include <cmath>
#include <set>

#include "parallel_for.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/gguf_blocks.h"
#include "rf/io/half.h"
#include "rf/io/printable.h"
#include "rf/io/safetensors.h"
#include "rf/model/foreign_models.h"

namespace rf::engine {

namespace {

constexpr const char* kWeightsWhere = "load_model";

constexpr int64_t kParallelRead = 65536;  // elements

int64_t elements_of(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

// Tables of frequencies in GGUF files, which the rotation's report reads, and the matrices after the pooling of
// EmbeddingGemma.
bool is_read_elsewhere(const std::string& name, const ModelConfig& config) {
  const bool pools = config.family == Family::kDecoder && !config.is_decoder;
  return name == "rope_freqs.weight" || name.starts_with("rope_factors_") ||
         (pools && std::ranges::find(kGgufDense, name) != std::end(kGgufDense));
}

void check_dtype(const io::TensorView& view) {
  if (io::is_floating(view.dtype)) return;
  fail(kWeightsWhere, "weights must be F16, BF16, F32 or F64, got {} for {}", io::safetensors_name(view.dtype),
       view.name);
}

// Threads get parts of this many elements; a part and its result fit into a core's caches.
constexpr int64_t kPart = 16384;

// part(begin, count) for all of `count` elements, on all threads.
template <class Part>
void for_parts(int64_t count, const Part& part) {
#pragma omp parallel for schedule(static) if (count > kPart)
  for (int64_t begin = 0; begin < count; begin += kPart) part(begin, std::min(kPart, count - begin));
}

// The exponent of NaN and of infinity, and of no other number, has all bits set. Without branches, for vectors.
bool all_finite(const float* values, int64_t count) {
  constexpr uint32_t kExponent = 0x7F800000;
  std::atomic<bool> finite = true;
  for_parts(count, [&](int64_t begin, int64_t part) {
    uint32_t found = 0;
    for (int64_t i = begin; i < begin + part; ++i)
      found |= (std::bit_cast<uint32_t>(values[i]) & kExponent) == kExponent ? 1u : 0u;
    if (found != 0) finite = false;
  });
  return finite;
}

std::string index_text(const std::vector<int64_t>& shape, int64_t flat) {
  std::string text;
  for (size_t d = shape.size(); d-- > 0; flat /= shape[d])
    text = std::to_string(flat % shape[d]) + (text.empty() ? "" : ", ") + text;
  return text;
}

void check_finite(const io::TensorView& view, const float* values, int64_t count) {
  if (all_finite(values, count)) return;
  const float* bad = std::find_if(values, values + count, [](float x) { return !std::isfinite(x); });
  fail(kWeightsWhere, "weights must be finite in float32, got {} in {}[{}]", *bad, view.name,
       index_text(view.shape, bad - values));
}

// Whether the file's bytes can be read as floats in place.
bool holds_floats(const io::TensorView& view) {
  return view.dtype == io::DType::kF32 && reinterpret_cast<uintptr_t>(view.data.data()) % alignof(float) == 0;
}

}  // namespace

void read_elements(const io::TensorView& view, int64_t begin, int64_t count, float* to) {
  io::read_floats(view.dtype, view.data.data() + begin * static_cast<int64_t>(io::size_of(view.dtype)), count, to);
}

TensorFloats::TensorFloats(std::shared_ptr<const CheckpointFiles> files, const io::TensorView& view)
    : files_(std::move(files)), view_(&view), size_(elements_of(view.shape)) {
  check_dtype(view);  // not by read_elements: nothing may leave a parallel loop
  if (holds_floats(view)) {
    data_ = reinterpret_cast<const float*>(view.data.data());
  } else {
    copy_ = make_floats(size_);
    for_parts(size_, [&](int64_t begin, int64_t count) { read_elements(view, begin, count, copy_.get() + begin); });
    data_ = copy_.get();
  }
  check_finite(view, data_, size_);
}

TensorFloats::~TensorFloats() {
  if (view_ != nullptr) io::release_pages(view_->data);
}

void transpose(const float* from, int64_t rows, int64_t columns, float* to) {
  parallel_for(columns, rows * columns > kParallelRead, [&](int64_t column) {
    for (int64_t r = 0; r < rows; ++r) to[column * rows + r] = from[r * columns + column];
  });
}

std::vector<float> transposed(const std::vector<float>& values, int64_t rows) {
  std::vector<float> out(values.size());
  transpose(values.data(), rows, std::ssize(values) / rows, out.data());
  return out;
}

std::vector<float> finite_elements(const io::TensorView& view) {
  const TensorFloats values(nullptr, view);
  return {values.get(), values.get() + values.size()};
}

MappedRows::MappedRows(std::shared_ptr<const void> owner, const io::TensorView& view,
                       std::shared_ptr<const LowRank> change)
    : owner_(std::move(owner)), view_(&view), change_(std::move(change)) {}

void MappedRows::add_row(int64_t row, float* to) const {
  constexpr int64_t kColumns = 1024;
  float values[kColumns];
  for (int64_t begin = 0; begin < width(); begin += kColumns) {
    const int64_t count = std::min(kColumns, width() - begin);
    read_elements(*view_, row * width() + begin, count, values);
    for (int64_t i = 0; i < count; ++i) to[begin + i] += values[i];
  }
  if (change_ != nullptr) change_->add_row(row, to);
}

Weights::Weights(const std::string& model_dir, const ModelConfig& config, Head head,
                 const std::function<void(const std::string&)>& warn, const AdapterChoice& adapter) {
  const auto adapters = std::make_shared<const Adapters>(
      std::make_shared<const CheckpointFiles>(model_dir, kWeightsWhere), config, head, adapter);
  files_ = {adapters, &adapters->files()};
  const std::vector<NamedShape>& shapes = adapters->shapes();
  std::vector<WeightSpec> specs = weight_specs(config, head);
  if (head == Head::kNone) {
    const bool has_pooler = std::any_of(shapes.begin(), shapes.end(), [](const NamedShape& each) {
      return each.name.ends_with("pooler.dense.weight");
    });
    std::erase_if(specs, [&](const WeightSpec& spec) { return !has_pooler && spec.name.starts_with("pooler."); });
  }
  WeightMatch match = match_weights(config, head, shapes, FreshHead::kForbidden, specs);
  for (const std::string& warning : add_untied(*files_, config, match)) {
    if (warn) warn(warning);
  }
  for (const auto& [name, in_file] : match.names) {
    add(name, adapters->at(in_file));
    if (const LowRank* change = adapters->change_of(in_file); change != nullptr)
      tensors_.at(name).change = std::shared_ptr<const LowRank>(adapters, change);
  }
  for (const WeightSpec& spec : specs) {
    if (!spec.transposed) continue;
    Tensor& tensor = tensors_.at(spec.name);
    if (tensor.change != nullptr)
      fail(kWeightsWhere, "adapters must be of matrices [out, in], got one of {}", tensor.view->name);
    tensor.shape = spec.shape;
    tensor.transposed = true;
  }
  add_encodings();
}

Weights::Weights(std::shared_ptr<const CheckpointFiles> files, const ModelConfig& config, TranslationSide side)
    : files_(std::move(files)), side_tensors_(side_tensors(*files_, config, side)), side_(side) {
  for (const auto& [name, view] : side_tensors_) add(name, *view);
  add_encodings();
}

Weights::Weights(std::shared_ptr<const io::GgufFile> gguf, const ModelConfig& config, Head head)
    : gguf_(std::move(gguf)) {
  const std::string& path = gguf_->path();
  std::set<std::string> used;
  for (const WeightSpec& spec : weight_specs(config, head)) {
    const std::string name = gguf_name(config, spec.name);
    const io::GgufTensor* const tensor = gguf_->find(name);
    if (tensor == nullptr) fail(path, "the file must have the tensor {}, got none", name);
    gguf_->check(*tensor);
    const std::vector<int64_t> shape(tensor->shape.rbegin(), tensor->shape.rend());
    if (shape != spec.shape) {
      fail(path, "{} must have the shape [{}], got [{}]", name, fmt::join(spec.shape, ", "), fmt::join(shape, ", "));
    }
    used.insert(name);
    tensors_.emplace(spec.name, Tensor{.shape = shape, .quantised = tensor});
  }
  for (const io::GgufTensor& tensor : gguf_->tensors()) {
    if (used.contains(tensor.name) || is_read_elsewhere(tensor.name, config)) continue;
    if (head == Head::kNone && tensor.name == gguf_name(config, "lm_head.weight")) continue;
    fail(path, "the file must have no tensor that a {} does not use, got {}", model_type(config),
         io::printable(tensor.name));
  }
}

void Weights::add(const std::string& name, const io::TensorView& view) {
  tensors_.emplace(name, Tensor{.shape = view.shape, .view = &view});
}

void Weights::add_encodings() {
  for (const auto& [name, view] : files_->tensors()) {
    if (is_added_name(name)) add(name, *view);
  }
}

bool Weights::has(const std::string& name) const { return tensors_.contains(name); }

bool Weights::changes_projections() const {
  return std::ranges::any_of(tensors_, [](const auto& each) {
    return each.second.change != nullptr && each.first.find(".attention.self.") != std::string::npos;
  });
}

const Weights::Tensor& Weights::at(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) fail(kWeightsWhere, "the checkpoint must have {}, got none", name);
  return found->second;
}

const std::vector<int64_t>& Weights::shape(const std::string& name) const { return at(name).shape; }

void Weights::read(const std::string& name, float* to) const {
  const Tensor& tensor = at(name);
  if (tensor.view != nullptr) {
    const TensorFloats values(files_, *tensor.view);
    if (tensor.transposed) return transpose(values.get(), tensor.shape[1], tensor.shape[0], to);
    std::copy_n(values.get(), values.size(), to);
    if (tensor.change == nullptr) return;
    const int64_t rows = tensor.shape[0], width = tensor.shape[1];
    return parallel_for(rows, values.size() > kParallelRead,
                        [&](int64_t row) { tensor.change->add_row(row, to + row * width); });
  }
  const int64_t count = elements_of(tensor.shape), row = tensor.shape.back();
  parallel_for(count / row, count > kParallelRead, [&](int64_t i) {
    gguf_->read(*tensor.quantised, static_cast<uint64_t>(i * row), static_cast<uint64_t>(row), to + i * row);
  });
  release_pages(name);
  const float* bad = std::find_if(to, to + count, [](float x) { return !std::isfinite(x); });
  if (bad != to + count)
    fail(gguf_->path(), "weights must be finite, got {} in {}[{}]", *bad, tensor.quantised->name, bad - to);
}

TensorFloats Weights::floats(const std::string& name) const {
  const Tensor& tensor = at(name);
  if (tensor.view != nullptr && tensor.change == nullptr && !tensor.transposed) return {files_, *tensor.view};
  const int64_t count = elements_of(tensor.shape);
  Floats values = make_floats(count);
  read(name, values.get());
  return {std::move(values), count};
}

std::vector<float> Weights::vector(const std::string& name) const {
  std::vector<float> values(static_cast<size_t>(elements_of(shape(name))));
  read(name, values.data());
  return values;
}

std::span<const std::byte> Weights::bytes(const std::string& name) const {
  const io::TensorView& view = *at(name).view;
  if (view.dtype != io::DType::kU8)
    fail(kWeightsWhere, "{} must be U8, got {}", view.name, io::safetensors_name(view.dtype));
  return view.data;
}

MappedRows Weights::mapped_rows(const std::string& name) const {
  struct Copy {
    std::vector<float> values;
    io::TensorView view;
  };
  const Tensor& tensor = at(name);
  if (tensor.view == nullptr) {
    const auto copy = std::make_shared<Copy>();
    copy->values = vector(name);
    copy->view = {name, io::DType::kF32, tensor.shape, std::as_bytes(std::span(copy->values))};
    return MappedRows(copy, copy->view);
  }
  TensorFloats(files_, *tensor.view);  // for its check
  return MappedRows(files_, *tensor.view, tensor.change);
}

ReadRow Weights::rows(const std::string& name) const {
  const Tensor& tensor = at(name);
  if (tensor.view != nullptr) return [rows = mapped_rows(name)](int64_t row, float* to) { rows.read_row(row, to); };
  const int64_t width = tensor.shape[1];
  std::atomic<bool> finite = true;
  parallel_for(tensor.shape[0], elements_of(tensor.shape) > kParallelRead, [&](int64_t row) {
    thread_local std::vector<float> values;
    values.resize(static_cast<size_t>(width));
    gguf_->read(*tensor.quantised, static_cast<uint64_t>(row * width), static_cast<uint64_t>(width), values.data());
    if (!std::ranges::all_of(values, [](float x) { return std::isfinite(x); })) finite = false;
  });
  if (!finite) floats(name);  // throws
  release_pages(name);
  return [gguf = gguf_, found = tensor.quantised, width](int64_t row, float* to) {
    gguf->read(*found, static_cast<uint64_t>(row * width), static_cast<uint64_t>(width), to);
  };
}

bool Weights::add_file_rows(const std::string& name, FileRows& to, int64_t part, int64_t parts) const {
  const Tensor& tensor = at(name);
  if (tensor.quantised == nullptr) return false;
  const io::GgufElement type = io::find_gguf_block(tensor.quantised->type)->type;
  const bool is_packed = type != io::GgufElement::kF32 && type != io::GgufElement::kQ8_K &&
                         type != io::GgufElement::kTQ1_0 && type != io::GgufElement::kTQ2_0;
  if (!is_packed) return false;
  const int64_t all = elements_of(tensor.shape) / tensor.shape.back(), rows = all / parts;
  const std::span<const std::byte> bytes = gguf_->bytes(*tensor.quantised);
  const int64_t row_bytes = std::ssize(bytes) / all;
  for (int64_t row = part * rows; row < (part + 1) * rows; ++row) to.rows.push_back(bytes.data() + row * row_bytes);
  const auto block = static_cast<rf_block_type>(type);
  if (to.runs.empty() || to.runs.back().type != block) to.runs.push_back({block, 0});
  to.runs.back().rows += rows;
  return true;
}

void Weights::release_pages(const std::string& name) const { io::release_pages(gguf_->bytes(*at(name).quantised)); }

}  // namespace rf::engine
