// Reading and checking weights (see the header).
#include "weights.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/half.h"
#include "rf/io/safetensors.h"

namespace rf::engine {

namespace {

constexpr const char* kWeightsWhere = "load_model";

int64_t elements_of(const io::TensorView& view) {
  int64_t count = 1;
  for (const int64_t extent : view.shape) count *= extent;
  return count;
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

// Whether the file's bytes can be read as floats where they are.
bool holds_floats(const io::TensorView& view) {
  return view.dtype == io::DType::kF32 && reinterpret_cast<uintptr_t>(view.data.data()) % alignof(float) == 0;
}

}  // namespace

void read_elements(const io::TensorView& view, int64_t begin, int64_t count, float* to) {
  io::read_floats(view.dtype, view.data.data() + begin * static_cast<int64_t>(io::size_of(view.dtype)), count, to);
}

TensorFloats::TensorFloats(std::shared_ptr<const CheckpointFiles> files, const io::TensorView& view)
    : files_(std::move(files)), view_(view), size_(elements_of(view)) {
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

TensorFloats::~TensorFloats() { io::release_pages(view_.data); }

std::vector<float> finite_elements(const io::TensorView& view) {
  const TensorFloats values(nullptr, view);
  return {values.get(), values.get() + values.size()};
}

MappedRows::MappedRows(std::shared_ptr<const CheckpointFiles> files, const io::TensorView& view)
    : files_(std::move(files)), view_(&view) {}

void MappedRows::add_row(int64_t row, float* to) const {
  constexpr int64_t kColumns = 1024;
  float values[kColumns];
  for (int64_t begin = 0; begin < width(); begin += kColumns) {
    const int64_t count = std::min(kColumns, width() - begin);
    read_elements(*view_, row * width() + begin, count, values);
    for (int64_t i = 0; i < count; ++i) to[begin + i] += values[i];
  }
}

Weights::Weights(const std::string& model_dir, const ModelConfig& config, Head head,
                 const std::function<void(const std::string&)>& warn)
    : files_(std::make_shared<CheckpointFiles>(model_dir, kWeightsWhere)) {
  std::vector<NamedShape> shapes;
  for (NamedShape& each : files_->shapes()) {
    if (!is_added_name(each.name)) shapes.push_back(std::move(each));
  }
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
  for (const auto& [name, in_file] : match.names) tensors_.emplace(name, &files_->at(in_file));
}

Weights::Weights(std::shared_ptr<const CheckpointFiles> files, const TranslationConfig& config, TranslationSide side)
    : files_(std::move(files)), tensors_(side_tensors(*files_, config, side)), side_(side) {}

const io::TensorView* Weights::find(const std::string& name) const {
  if (const auto found = tensors_.find(name); found != tensors_.end()) return found->second;
  const auto added = is_added_name(name) ? files_->tensors().find(name) : files_->tensors().end();
  return added == files_->tensors().end() ? nullptr : added->second;
}

const io::TensorView& Weights::view(const std::string& name) const {
  const io::TensorView* found = find(name);
  if (found == nullptr) fail(kWeightsWhere, "the checkpoint must have {}, got none", name);
  return *found;
}

std::vector<float> Weights::vector(const std::string& name) const { return finite_elements(view(name)); }

void Weights::read(const std::string& name, float* to) const {
  const TensorFloats values = floats(name);
  std::copy_n(values.get(), values.size(), to);
}

MappedRows Weights::rows(const std::string& name) const {
  floats(name);  // for its check
  return MappedRows(files_, view(name));
}

}  // namespace rf::engine
