// Reading and checking weights (see the header).
#include "weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "rf/io/error.h"
#include "rf/io/safetensors.h"

namespace rf::engine {

namespace {

constexpr const char* kWhere = "load_model";
// What encodings and linear attention add to the tensors of model/weights.h.
constexpr const char* kAddedPrefixes[] = {"position_encoding.", "linear_attention."};

bool is_added_name(const std::string& name) {
  return std::any_of(std::begin(kAddedPrefixes), std::end(kAddedPrefixes),
                     [&](const char* prefix) { return name.starts_with(prefix); });
}

int64_t elements_of(const io::TensorView& view) {
  int64_t count = 1;
  for (const int64_t extent : view.shape) count *= extent;
  return count;
}

// to[i] = convert(element i); file data need not be aligned.
template <class Element, class Convert>
void convert_elements(const std::byte* from, int64_t count, float* to, const Convert& convert) {
  for (int64_t i = 0; i < count; ++i) {
    Element element;
    std::memcpy(&element, from + i * static_cast<int64_t>(sizeof(Element)), sizeof(Element));
    to[i] = convert(element);
  }
}

bool is_float(io::DType dtype) {
  return dtype == io::DType::kF16 || dtype == io::DType::kBF16 || dtype == io::DType::kF32 || dtype == io::DType::kF64;
}

// The exponent of NaN and of infinity, and of no other number, has all bits set.
bool all_finite(const float* values, int64_t count) {
  constexpr uint32_t kExponent = 0x7F800000;
  uint32_t found = 0;
  for (int64_t i = 0; i < count; ++i) {
    found |= (std::bit_cast<uint32_t>(values[i]) & kExponent) == kExponent ? 1u : 0u;
  }
  return found == 0;
}

std::string index_text(const std::vector<int64_t>& shape, int64_t flat) {
  std::string text;
  for (size_t d = shape.size(); d-- > 0; flat /= shape[d]) {
    text = std::to_string(flat % shape[d]) + (text.empty() ? "" : ", ") + text;
  }
  return text;
}

void check_finite(const io::TensorView& view, int64_t begin, const float* values, int64_t count) {
  if (all_finite(values, count)) return;
  const float* bad = std::find_if(values, values + count, [](float x) { return !std::isfinite(x); });
  fail(kWhere, "weights must be finite in float32, got {} in {}[{}]", *bad, view.name,
       index_text(view.shape, begin + (bad - values)));
}

// Calls part(begin, values, count) for all elements of a tensor, some at a time.
template <class Part>
void for_parts(const io::TensorView& view, const Part& part) {
  constexpr int64_t kPart = 4096;
  float values[kPart];
  const int64_t all = elements_of(view);
  for (int64_t begin = 0; begin < all; begin += kPart) {
    const int64_t count = std::min(kPart, all - begin);
    read_elements(view, begin, count, values);
    part(begin, values, count);
  }
}

}  // namespace

void read_elements(const io::TensorView& view, int64_t begin, int64_t count, float* to) {
  const std::byte* from = view.data.data() + begin * static_cast<int64_t>(io::size_of(view.dtype));
  switch (view.dtype) {
    case io::DType::kF32:
      std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
      return;
    case io::DType::kBF16:
      return convert_elements<uint16_t>(from, count, to, float_of_bf16);
    case io::DType::kF16:
      return convert_elements<uint16_t>(from, count, to, float_of_half);
    case io::DType::kF64:
      return convert_elements<double>(from, count, to, [](double x) { return static_cast<float>(x); });
    default:
      fail(kWhere, "weights must be F16, BF16, F32 or F64, got {} for {}", io::safetensors_name(view.dtype), view.name);
  }
}

MappedRows::MappedRows(std::shared_ptr<const CheckpointFiles> files, const io::TensorView& view)
    : files_(std::move(files)), view_(&view) {}

void MappedRows::add_row(int64_t row, float* to) const {
  constexpr int64_t kPart = 1024;
  float values[kPart];
  for (int64_t begin = 0; begin < width(); begin += kPart) {
    const int64_t count = std::min(kPart, width() - begin);
    read_elements(*view_, row * width() + begin, count, values);
    for (int64_t i = 0; i < count; ++i) to[begin + i] += values[i];
  }
}

Weights::Weights(const std::string& model_dir, const ModelConfig& config, Head head)
    : files_(std::make_shared<CheckpointFiles>(model_dir, kWhere)) {
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
  const WeightMatch match = match_weights(config, head, shapes, FreshHead::kForbidden, specs);
  names_ = match.names;
  for (const auto& [name, in_file] : names_) {
    const io::TensorView& tensor = files_->at(in_file);
    if (!is_float(tensor.dtype)) {
      fail(kWhere, "weights must be F16, BF16, F32 or F64, got {} for {}", io::safetensors_name(tensor.dtype),
           tensor.name);
    }
  }
  for (const std::string& name : match.tied_copies) {
    const io::TensorView &copy = files_->at(name), &source = files_->at(names_.at(tied_source(config, name)));
    if (copy.dtype != source.dtype || !std::ranges::equal(copy.data, source.data)) {
      fail(kWhere, "{} must equal {} when tie_word_embeddings is true, got other values", name, source.name);
    }
  }
}

const io::TensorView* Weights::find(const std::string& name) const {
  if (is_added_name(name)) {
    const auto found = files_->tensors().find(name);
    return found == files_->tensors().end() ? nullptr : found->second;
  }
  const auto found = names_.find(name);
  return found == names_.end() ? nullptr : &files_->at(found->second);
}

const io::TensorView& Weights::view(const std::string& name) const {
  const io::TensorView* found = find(name);
  if (found == nullptr) fail(kWhere, "the checkpoint must have {}, got none", name);
  return *found;
}

Floats Weights::floats(const std::string& name) const {
  const io::TensorView& tensor = view(name);
  const int64_t count = elements_of(tensor);
  Floats values = make_floats(count);
  read_elements(tensor, 0, count, values.get());
  check_finite(tensor, 0, values.get(), count);
  return values;
}

std::vector<float> Weights::vector(const std::string& name) const {
  const io::TensorView& tensor = view(name);
  std::vector<float> values(static_cast<size_t>(elements_of(tensor)));
  read_elements(tensor, 0, static_cast<int64_t>(values.size()), values.data());
  check_finite(tensor, 0, values.data(), static_cast<int64_t>(values.size()));
  return values;
}

MappedRows Weights::rows(const std::string& name) const {
  const io::TensorView& tensor = view(name);
  for_parts(tensor,
            [&](int64_t begin, const float* values, int64_t count) { check_finite(tensor, begin, values, count); });
  return MappedRows(files_, tensor);
}

}  // namespace rf::engine
