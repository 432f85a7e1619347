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
         (pools && (name == "dense_2.weight" || name == "dense_3.weight"));
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

// [columns, rows] to [rows, columns].
void transpose(const float* from, int64_t rows, int64_t columns, float* to) {
  parallel_for(rows, rows * columns > kParallelRead, [&](int64_t row) {
    for (int64_t c = 0; c < columns; ++c) to[row * columns + c] = from[c * rows + row];
  });
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
    if (tensor.transposed) return transpose(values.get(), tensor.shape[0], tensor.shape[1], to);
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

bool Weights::add_file_rows(const std::string& name, FileRows& to) const {
  const Tensor& tensor = at(name);
  if (tensor.quantised == nullptr) return false;
  const io::GgufElement type = io::find_gguf_block(tensor.quantised->type)->type;
  const bool is_packed = type != io::GgufElement::kF32 && type != io::GgufElement::kQ8_K &&
                         type != io::GgufElement::kTQ1_0 && type != io::GgufElement::kTQ2_0;
  if (!is_packed) return false;
  const int64_t rows = tensor.shape[0];
  const std::span<const std::byte> bytes = gguf_->bytes(*tensor.quantised);
  const int64_t row_bytes = std::ssize(bytes) / rows;
  for (int64_t row = 0; row < rows; ++row) to.rows.push_back(bytes.data() + row * row_bytes);
  const auto block = static_cast<rf_block_type>(type);
  if (to.runs.empty() || to.runs.back().type != block) to.runs.push_back({block, 0});
  to.runs.back().rows += rows;
  return true;
}

void Weights::release_pages(const std::string& name) const { io::release_pages(gguf_->bytes(*at(name).quantised)); }

std::vector<float> read_bias(const Weights& weights, const std::string& name) {
  return weights.has(name + ".bias") ? weights.vector(name + ".bias") : std::vector<float>();
}

namespace {

// nullopt if one of the matrices must be read as floats.
std::optional<FileRows> file_rows(const Weights& weights, const std::vector<std::string>& matrices,
                                  Precision precision) {
  FileRows rows;
  for (const std::string& matrix : matrices) {
    if (precision != Precision::kFloat32 || !weights.add_file_rows(matrix, rows)) return std::nullopt;
  }
  return rows;
}

Linear packed_rows(const Weights& weights, const std::vector<std::string>& matrices, const FileRows& rows,
                   std::vector<float> bias) {
  try {
    Linear linear(weights.shape(matrices[0])[1], rows, std::move(bias));
    for (const std::string& matrix : matrices) weights.release_pages(matrix);
    return linear;
  } catch (const std::exception&) {
    for (const std::string& matrix : matrices) weights.floats(matrix);  // names an element that is not finite
    throw;
  }
}

// Matrices one below the other, [sum of outs, in], and their biases.
struct Joined {
  const Weights& weights;
  std::vector<std::string> matrices{};
  int64_t in, rows = 0;
  std::optional<FileRows> stored{};  // or floats
  Floats values{};
  std::vector<float> bias{};

  Joined(const Weights& from, const std::vector<std::string>& names, Precision precision)
      : weights(from), in(weights.shape(names[0] + ".weight")[1]) {
    for (const std::string& name : names) {
      matrices.push_back(name + ".weight");
      rows += weights.shape(matrices.back())[0];
      const std::vector<float> added = read_bias(weights, name);
      bias.insert(bias.end(), added.begin(), added.end());
    }
    stored = file_rows(weights, matrices, precision);
    if (stored) return;
    values = make_floats(rows * in);
    float* to = values.get();
    for (const std::string& matrix : matrices) {
      weights.read(matrix, to);
      to += weights.shape(matrix)[0] * in;
    }
  }
  // Calls reorder(width, from, to) for rows of `width` elements, and for the biases.
  template <class Reorder>
  void order(const Reorder& reorder) {
    if (stored) {
      reorder(1, std::vector(stored->rows).data(), stored->rows.data());
    } else {
      Floats ordered = make_floats(rows * in);
      reorder(in, values.get(), ordered.get());
      values = std::move(ordered);
    }
    if (!bias.empty()) reorder(1, std::vector(bias).data(), bias.data());
  }
  bool has_one_type() const { return !stored || stored->runs.size() == 1; }
  Linear packed(Precision precision, const std::vector<float>& largest_inputs) {
    if (stored) return packed_rows(weights, matrices, *stored, std::move(bias));
    return {precision, in, rows, values.get(), std::move(bias), largest_inputs};
  }
};

}  // namespace

Linear read_matrix(const Weights& weights, const std::string& matrix, Precision precision, std::vector<float> bias,
                   const std::vector<float>& largest_inputs) {
  if (const std::optional<FileRows> rows = file_rows(weights, {matrix}, precision))
    return packed_rows(weights, {matrix}, *rows, std::move(bias));
  const std::vector<int64_t>& shape = weights.shape(matrix);
  return {precision, shape[1], shape[0], weights.floats(matrix).get(), std::move(bias), largest_inputs};
}

Linear read_linear(const Weights& weights, const std::string& name, Precision precision,
                   const std::vector<float>& largest_inputs) {
  return read_matrix(weights, name + ".weight", precision, read_bias(weights, name), largest_inputs);
}

Linear read_joined(const Weights& weights, const std::vector<std::string>& names, Precision precision,
                   const std::vector<float>& largest_inputs) {
  return Joined(weights, names, precision).packed(precision, largest_inputs);
}

namespace {

std::vector<float> read_gain(const Weights& weights, const std::string& name, const ModelConfig& config) {
  std::vector<float> gain = weights.vector(name + ".weight");
  if (config.block.norm_plus_one) {
    for (float& each : gain) each += 1;
  }
  return gain;
}

}  // namespace

Norm read_norm(const Weights& weights, const std::string& name, const ModelConfig& config, int64_t columns) {
  return {.kind = config.block.norm,
          .columns = columns,
          .gain = config.block.norm_weight ? read_gain(weights, name, config) : std::vector<float>(),
          .bias = config.block.norm_bias ? weights.vector(name + ".bias") : std::vector<float>(),
          .eps = config.layer_norm_eps};
}

namespace {

// Rows of `width` numbers, the queries, key and value of each key head, to all queries, all keys and all values.
template <class T>
void order_by_part(const ModelConfig& config, const T* from, int64_t width, T* to) {
  const int64_t part = config.head_dim() * width, groups = config.key_heads();
  const int64_t queries = config.num_attention_heads / groups * part;
  T *const keys = to + groups * queries, *const values = keys + groups * part;
  for (int64_t group = 0; group < groups; ++group, from += queries + 2 * part) {
    std::copy_n(from, queries, to + group * queries);
    std::copy_n(from + queries, part, keys + group * part);
    std::copy_n(from + queries + part, part, values + group * part);
  }
}

// Queries, keys and values, in this order. name: of the layer's projections.
Linear read_qkv(const Weights& weights, const std::string& name, const ModelConfig& config, Precision precision,
                const std::vector<float>& largest_inputs) {
  const std::string fused = name + "query_key_value";
  switch (config.block.fused_qkv) {
    case BlockSpec::Fused::kNone:
      return read_joined(weights, {name + "query", name + "key", name + "value"}, precision, largest_inputs);
    case BlockSpec::Fused::kParts: return read_linear(weights, fused, precision, largest_inputs);
    case BlockSpec::Fused::kHeads: break;
  }
  Joined all(weights, {fused}, precision);
  all.order([&](int64_t width, const auto* from, auto* to) { order_by_part(config, from, width, to); });
  if (config.block.query_value_bias) {
    all.bias.resize(static_cast<size_t>(all.rows));
    weights.read(name + "q_bias", all.bias.data());
    weights.read(name + "v_bias", all.bias.data() + all.rows / 3 * 2);
  }
  return all.packed(precision, largest_inputs);
}

// Gate and up in this order, or ordered for a product that applies the gate, or up alone. name: of the layer.
Linear read_up(const Weights& weights, const std::string& name, const ModelConfig& config, Precision precision,
               const std::vector<float>& largest_inputs) {
  const std::string up = name + "intermediate.dense", fused = name + "intermediate.gate_up";
  if (!config.block.gated) return read_linear(weights, up, precision, largest_inputs);
  const bool is_fused = config.block.fused_gate != BlockSpec::FusedGate::kNone;
  Joined all(weights, is_fused ? std::vector{fused} : std::vector{name + "intermediate.gate", up}, precision);
  const int64_t half = config.intermediate_size;
  if (config.block.fused_gate == BlockSpec::FusedGate::kUpGate) {
    all.order([&](int64_t width, const auto* from, auto* to) {
      std::rotate_copy(from, from + half * width, from + 2 * half * width, to);
    });
  }
  if (!has_fused_gate(precision, config.hidden_act, half) || !all.has_one_type())
    return all.packed(precision, largest_inputs);
  all.order([&](int64_t width, const auto* from, auto* to) { order_gates(half, width, from, to); });
  Linear linear = all.packed(precision, largest_inputs);
  linear.set_gate(config.hidden_act);
  return linear;
}

}  // namespace

Block read_block(const Weights& weights, const std::string& prefix, const ModelConfig& config, int64_t layer,
                 Precision precision, const LayerInputs& largest) {
  const std::string name = fmt::format("{}encoder.layer.{}.", prefix, layer);
  const auto head_norm = [&](const char* module) -> Norm {
    if (config.block.whole_query_key_norm)
      return read_norm(weights, name + module, config, weights.shape(name + module + ".weight")[0]);
    if (!config.block.query_key_norm) return {};
    return {.kind = NormKind::kRms,
            .columns = config.head_dim(),
            .gain = read_gain(weights, name + module, config),
            .bias = {},
            .eps = config.layer_norm_eps};
  };
  const auto norm_if = [&](const char* module, bool has_it) -> Norm {
    return has_it ? read_norm(weights, name + module, config, config.hidden_size) : Norm{};
  };
  const char* const norm = "attention.output.LayerNorm";
  Block block = {
      .attention_norm = norm_if(norm, config.block.has_attention_norm(layer)),
      .feed_forward_norm = norm_if(config.block.shared_norm ? norm : "output.LayerNorm", config.block.input_norm),
      .query_norm = head_norm("attention.self.query_norm"),
      .key_norm = head_norm("attention.self.key_norm"),
      .attention_post_norm =
          norm_if("attention.output.post_norm", config.block.post_norm || config.block.attention_twice),
      .feed_forward_post_norm = norm_if("output.post_norm", config.block.post_norm),
      .qkv = read_qkv(weights, name + "attention.self.", config, precision, largest.attention),
      .attention_output = read_linear(weights, name + "attention.output.dense", precision),
      .up = {},
      .down = {}};
  if (!config.block.has_experts(layer)) {
    block.up = read_up(weights, name, config, precision, largest.feed_forward);
    block.down = read_linear(weights, name + "output.dense", precision);
  }
  if (config.block.sinks) block.sinks = weights.vector(name + "attention.self.sinks");
  if (!config.add_cross_attention) return block;
  const std::string cross = name + "crossattention.";
  block.cross_norm = read_norm(weights, cross + "output.LayerNorm", config, config.hidden_size);
  block.cross_query = read_linear(weights, cross + "self.query", precision, largest.cross);
  block.cross_key_value = read_joined(weights, {cross + "self.key", cross + "self.value"}, precision);
  block.cross_output = read_linear(weights, cross + "output.dense", precision);
  return block;
}

}  // namespace rf::engine
