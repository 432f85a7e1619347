// Layers out of weights (weights.h): joined, ordered and packed.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <optional>

#include "weights.h"

namespace rf::engine {

std::vector<float> read_bias(const Weights& weights, const std::string& name) {
  return weights.has(name + ".bias") ? weights.vector(name + ".bias") : std::vector<float>();
}

namespace {

// nullopt if one of the matrices must be read as floats.
std::optional<FileRows> file_rows(const Weights& weights, const std::vector<std::string>& matrices, Precision precision,
                                  int64_t part = 0, int64_t parts = 1) {
  FileRows rows;
  for (const std::string& matrix : matrices) {
    if (precision != Precision::kFloat32 || !weights.add_file_rows(matrix, rows, part, parts)) return std::nullopt;
  }
  return rows;
}

// releases: whether no later part of the matrices is read.
Linear packed_rows(const Weights& weights, const std::vector<std::string>& matrices, const FileRows& rows,
                   std::vector<float> bias, bool releases = true) {
  try {
    Linear linear(weights.shape(matrices[0]).back(), rows, std::move(bias));
    for (const std::string& matrix : matrices) {
      if (releases) weights.release_pages(matrix);
    }
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

std::optional<Linear> read_stored_part(const Weights& weights, const std::vector<std::string>& tensors,
                                       Precision precision, const std::vector<float>& bias, int64_t part) {
  const int64_t parts = weights.shape(tensors[0])[0];
  const std::optional<FileRows> rows = file_rows(weights, tensors, precision, part, parts);
  if (!rows) return std::nullopt;
  return packed_rows(weights, tensors, *rows, bias, part + 1 == parts);
}

Linear read_joined(const Weights& weights, const std::vector<std::string>& names, Precision precision,
                   const std::vector<float>& largest_inputs) {
  return Joined(weights, names, precision).packed(precision, largest_inputs);
}

Linear read_convolution(const Weights& weights, const std::string& name, int64_t groups, Precision precision) {
  const std::vector<int64_t>& shape = weights.shape(name + ".weight");
  const int64_t out = shape[0], in_group = shape[1], taps = shape[2], in = in_group * groups;
  const TensorFloats floats = weights.floats(name + ".weight");
  std::vector<float> matrix(static_cast<size_t>(out * taps * in));
  const float* from = floats.get();
  for (int64_t o = 0; o < out; ++o) {
    float* const row = matrix.data() + o * taps * in + o / (out / groups) * in_group;
    for (int64_t i = 0; i < in_group; ++i) {
      for (int64_t tap = 0; tap < taps; ++tap) row[tap * in + i] = *from++;
    }
  }
  return {precision, taps * in, out, matrix.data(), read_bias(weights, name)};
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
    using HeadNorm = BlockSpec::HeadNorm;
    const HeadNorm of = config.block.head_norm;
    if (of == HeadNorm::kShared) return read_norm(weights, name + module, config, config.head_dim(layer));
    Norm norm{config.block.norm, config.head_dim(layer), {}, {}, config.layer_norm_eps};
    if (of == HeadNorm::kStacked) norm.gain = read_gain(weights, name + module, config);
    for (int64_t h = 0; weights.has(fmt::format("{}{}.{}.weight", name, module, h)); ++h) {
      const std::vector<float> own = read_gain(weights, fmt::format("{}{}.{}", name, module, h), config);
      norm.gain.insert(norm.gain.end(), own.begin(), own.end());
    }
    return norm;
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
  if (!config.has_experts(layer)) {
    block.up = read_up(weights, name, config, precision, largest.feed_forward);
    block.down = read_linear(weights, name + "output.dense", precision);
  }
  if (config.block.sinks) block.sinks = weights.vector(name + "attention.self.sinks");
  if (config.block.value_norm)
    block.value_norm = {NormKind::kRms, config.head_dim(layer), {}, {}, config.layer_norm_eps};
  if (const int64_t width = config.block.layer_input_width; width > 0) {
    block.layer_gate = read_linear(weights, name + "layer_input.gate", precision);
    block.layer_down = read_linear(weights, name + "layer_input.down", precision);
    block.layer_norm = read_norm(weights, name + "layer_input.norm", config, config.hidden_size);
    block.layer_input_norm = read_norm(weights, prefix + kLayerInputNorm, config, width);
    block.layer_input_norm.eps *= static_cast<double>(config.hidden_size);  // in place of the division by its root
  }
  if (config.block.layer_scale) block.scale = weights.vector(name + "scale")[0];
  if (!config.add_cross_attention) return block;
  const std::string cross = name + "crossattention.";
  block.cross_norm = read_norm(weights, cross + "output.LayerNorm", config, config.hidden_size);
  block.cross_query = read_linear(weights, cross + "self.query", precision, largest.cross);
  block.cross_key_value = read_joined(weights, {cross + "self.key", cross + "self.value"}, precision);
  block.cross_output = read_linear(weights, cross + "output.dense", precision);
  return block;
}

}  // namespace rf::engine
