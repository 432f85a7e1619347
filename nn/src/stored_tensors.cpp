// Tensors between memory and the files of a model directory (stored_tensors.h).
#include "stored_tensors.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <utility>

#include "rf/io/error.h"

namespace rf::nn {

namespace {

constexpr std::pair<io::DType, at::ScalarType> kDtypes[] = {{io::DType::kF16, at::kHalf},
                                                            {io::DType::kBF16, at::kBFloat16},
                                                            {io::DType::kF32, at::kFloat},
                                                            {io::DType::kF64, at::kDouble},
                                                            {io::DType::kI64, at::kLong}};  // of buffers only

at::ScalarType scalar_type(const io::TensorView& view, WeightRole role) {
  for (const auto& [stored, dtype] : kDtypes) {
    if (stored == view.dtype && (dtype != at::kLong || role == WeightRole::kBuffer)) return dtype;
  }
  fail("load_model", "weights must be F16, BF16, F32 or F64, got {} for {}", io::safetensors_name(view.dtype),
       view.name);
}

// The dtype in which a weight (float32) or a buffer is stored.
io::DType stored_dtype(const at::Tensor& tensor, const std::string& name) {
  for (const auto& [stored, dtype] : kDtypes) {
    if (dtype == tensor.scalar_type()) return stored;
  }
  fail("save_model", "buffers must be floating-point or int64, got {} for {}", toString(tensor.scalar_type()), name);
}

}  // namespace

at::Tensor read_tensor(const io::TensorView& view, WeightRole role) {
  at::Tensor tensor = at::empty(view.shape, scalar_type(view, role));
  if (!view.data.empty()) std::memcpy(tensor.data_ptr(), view.data.data(), view.data.size());
  return tensor;
}

// A finite sum proves that there is neither NaN nor infinity; only otherwise is each element looked at.
at::Tensor finite_as(const at::Tensor& tensor, at::ScalarType dtype, const std::string& name) {
  const at::Tensor converted = tensor.to(dtype);
  if (std::isfinite(converted.sum(at::kDouble).item<double>())) return converted;
  const at::Tensor bad = at::isfinite(converted).logical_not_().nonzero();
  if (bad.size(0) == 0) return converted;
  std::string index;
  for (int64_t d = 0; d < bad.size(1); ++d) index += fmt::format("{}{}", d ? ", " : "", bad[0][d].item<int64_t>());
  at::Tensor value = tensor;
  for (int64_t d = 0; d < bad.size(1); ++d) value = value[bad[0][d].item<int64_t>()];
  fail("load_model", "weights must be finite in {}, got {} in {}[{}] ({} such values)", toString(dtype),
       value.item<double>(), name, index, bad.size(0));
}

void load_buffer(at::Tensor& buffer, const at::Tensor& stored, const std::string& name) {
  if (stored.is_floating_point() != buffer.is_floating_point()) {
    fail("load_model", "{} must hold {}, got {}", name, buffer.is_floating_point() ? "floats" : "I64",
         toString(stored.scalar_type()));
  }
  buffer.copy_(stored.is_floating_point() ? finite_as(stored, buffer.scalar_type(), name) : stored);
}

void write_tensors(const std::vector<WeightSpec>& specs, const std::vector<at::Tensor>& values,
                   const std::string& model_dir) {
  std::vector<io::TensorView> views;
  for (size_t i = 0; i < specs.size(); ++i) {
    const auto* bytes = static_cast<const std::byte*>(values[i].const_data_ptr());
    views.push_back(
        {specs[i].name, stored_dtype(values[i], specs[i].name), specs[i].shape, {bytes, values[i].nbytes()}});
  }
  std::error_code error;
  std::filesystem::create_directories(model_dir, error);
  if (error) fail("save_model", "the model directory must be writable, got {} for {}", error.message(), model_dir);
  io::write_safetensors(std::filesystem::path(model_dir) / "model.safetensors", views, {{"format", "pt"}});
}

}  // namespace rf::nn
