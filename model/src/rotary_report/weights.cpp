// Compares a model's weights with its config.json (parts.h): shapes of projections, stored frequencies, tables of
// positions.
#include <algorithm>
#include <cmath>
#include <string_view>

#include "parts.h"
#include "rf/io/half.h"

namespace rf {
namespace {

using io::DType;
using io::TensorView;

// The elements of a tensor of a floating type; nullopt for another type.
std::optional<std::vector<double>> numbers_of(const TensorView& tensor) {
  if (!io::is_floating(tensor.dtype)) return std::nullopt;
  std::vector<float> numbers(tensor.data.size() / io::size_of(tensor.dtype));
  io::read_floats(tensor.dtype, tensor.data.data(), std::ssize(numbers), numbers.data());
  return std::vector<double>(numbers.begin(), numbers.end());
}

bool of_another_medium(std::string_view name) {
  return std::ranges::any_of(std::initializer_list<std::string_view>{"vision", "visual", "audio", "image"},
                             [&](std::string_view word) { return name.find(word) != std::string_view::npos; });
}

// Whether a tensor's name is `last`, or ends in it after a dot: "attn.qkv_proj.weight" is not a "v_proj.weight".
bool is_named(std::string_view name, std::string_view last) {
  if (!name.ends_with(last)) return false;
  return name.size() == last.size() || name[name.size() - last.size() - 1] == '.';
}

// Whether a tensor is `last` of the self-attention of a layer: "model.layers.3.self_attn.q_proj.weight".
// "layers.3.cross.q_proj.weight" is that of another attention, and may have any shape.
bool is_projection(std::string_view name, std::string_view last) {
  constexpr std::string_view kStacks[] = {"layers", "layer", "h", "blocks"};
  constexpr std::string_view kModules[] = {"self_attn", "attn", "attention", "self_attention"};
  if (!is_named(name, last)) return false;
  name.remove_suffix(std::min(last.size() + 1, name.size()));
  const auto take_word = [&] {
    const size_t begin = name.rfind('.') + 1;
    const std::string_view word = name.substr(begin);
    name = name.substr(0, begin == 0 ? 0 : begin - 1);
    return word;
  };
  const std::string_view module = take_word(), layer = take_word(), stack = take_word();
  return std::ranges::find(kModules, module) != std::end(kModules) && !layer.empty() &&
         layer.find_first_not_of("0123456789") == std::string_view::npos &&
         std::ranges::find(kStacks, stack) != std::end(kStacks);
}

bool is_named(std::string_view name, std::initializer_list<std::string_view> any_of) {
  return std::ranges::any_of(any_of, [&](std::string_view last) { return is_named(name, last); });
}

class WeightChecker {
 public:
  WeightChecker(const CheckpointFiles& files, const WeightFacts& facts, RotaryReport& report, Findings& findings)
      : files_(files), facts_(facts), report_(report), findings_(findings) {}

  void check() {
    const bool plain = facts_.family == nullptr || facts_.family->plain_qkv;
    if (plain && report_.heads > 0) check_projections();
    if (facts_.family != nullptr && facts_.family->head_key == "qk_rope_head_dim") check_latent();
    check_stored_frequencies();
    check_tables();
  }

 private:
  // Reports the first tensor that breaks a rule, and how many others do.
  void mismatch(const char* rule, const std::vector<const TensorView*>& wrong, int64_t rows, const std::string& of) {
    if (wrong.empty()) return;
    const std::string others = wrong.size() == 1 ? "" : fmt::format(" (and {} more tensors)", wrong.size() - 1);
    findings_.problem(rule, "{} has {} rows{}, and {} is {}", wrong[0]->name,
                      wrong[0]->shape.empty() ? 0 : wrong[0]->shape[0], others, of, rows);
  }

  template <typename Matches>
  std::vector<const TensorView*> with_other_rows(int64_t rows, Matches&& matches) const {
    std::vector<const TensorView*> wrong;
    for (const auto& [name, tensor] : files_.tensors()) {
      // Quantized weights are integers of another shape.
      if (!matches(std::string_view(name)) || of_another_medium(name) || !io::is_floating(tensor->dtype)) continue;
      if (tensor->shape.size() != 2 || tensor->shape[0] != rows) wrong.push_back(tensor);
    }
    return wrong;
  }

  void check_rows(const char* rule, std::initializer_list<std::string_view> names, int64_t rows,
                  const std::string& of) {
    const auto matches = [&](std::string_view name) {
      return std::ranges::any_of(names, [&](std::string_view last) { return is_projection(name, last); });
    };
    mismatch(rule, with_other_rows(rows, matches), rows, of);
  }

  void check_projections() {
    const int64_t heads = report_.heads, size = report_.head_size;
    const auto heads_of = [&](int64_t count) { return fmt::format("heads * head size = {} * {}", count, size); };
    check_rows("query-shape", {"q_proj.weight", "self.query.weight"}, heads * size, heads_of(heads));
    // Without the key, older models have a key head for each query head, and others may have any number.
    const int64_t groups = report_.kv_heads;
    if (groups > 0) {
      const std::string of = fmt::format("num_key_value_heads * head size = {} * {}", groups, size);
      check_rows("key-shape", {"k_proj.weight", "self.key.weight"}, groups * size, of);
      check_rows("value-shape", {"v_proj.weight", "self.value.weight"}, groups * size, of);
    }
    const int64_t all = heads + 2 * (groups > 0 ? groups : heads);
    check_rows("fused-shape", {"qkv_proj.weight", "query_key_value.weight", "Wqkv.weight"}, all * size,
               fmt::format("heads of queries, keys and values * head size = {} * {}", all, size));
  }

  // Multi-head latent attention: one matrix computes the latent vector and the rotated part of a key.
  void check_latent() {
    const auto size_of = [&](const char* key) {
      const nlohmann::json* const value = given(*facts_.config, key);
      const bool usable = value != nullptr && value->is_number_integer() && *value >= 1 && *value <= kMaxWidth;
      return usable ? value->get<int64_t>() : 0;
    };
    const int64_t latent = size_of("kv_lora_rank"), plain = size_of("qk_nope_head_dim"), rotated = report_.head_size;
    if (latent > 0) {
      check_rows("key-shape", {"kv_a_proj_with_mqa.weight"}, latent + rotated,
                 fmt::format("kv_lora_rank + qk_rope_head_dim = {} + {}", latent, rotated));
    }
    if (plain == 0 || report_.heads == 0) return;
    // Layers of linear attention have queries of another size, and no latent vector.
    const auto is_latent = [&](std::string_view name) {
      if (!is_projection(name, "q_proj.weight") && !is_projection(name, "q_b_proj.weight")) return false;
      const std::string module(name.substr(0, name.rfind('.', name.rfind('.') - 1) + 1));
      return files_.tensors().contains(module + "kv_a_proj_with_mqa.weight");
    };
    const int64_t rows = report_.heads * (plain + rotated);
    mismatch(
        "query-shape", with_other_rows(rows, is_latent), rows,
        fmt::format("heads * (qk_nope_head_dim + qk_rope_head_dim) = {} * ({} + {})", report_.heads, plain, rotated));
  }

  // The largest relative difference from the rotation's frequencies.
  static double difference(const std::vector<double>& stored, const Rotation& rotation) {
    double worst = 0;
    for (size_t i = 0; i < stored.size(); ++i) {
      const double exact = rotation.frequencies[i];
      const double error = exact == 0 ? std::abs(stored[i]) : std::abs(stored[i] / exact - 1);
      worst = std::isnan(error) ? HUGE_VAL : std::max(worst, error);
    }
    return worst;
  }

  void check_stored_frequencies() {
    const TensorView* worst = nullptr;
    double worst_difference = 0;
    size_t count = 0;
    for (const auto& [name, tensor] : files_.tensors()) {
      const bool is_rotary =
          is_named(name, {"rotary_emb.inv_freq", "rotary_embeddings.inv_freq", "rotary_pos_emb.inv_freq"});
      if (!is_rotary || of_another_medium(name)) continue;
      ++count;
      const std::optional<std::vector<double>> stored = numbers_of(*tensor);
      if (!stored) continue;
      double nearest = -1;
      bool of_size = false;
      for (const Rotation& rotation : report_.rotations) {
        if (!rotation.spec || rotation.frequencies.size() != stored->size()) continue;
        of_size = true;
        const double here = difference(*stored, rotation);
        if (nearest < 0 || here < nearest) nearest = here;
      }
      if (!of_size) {
        const auto computed =
            std::ranges::find_if(report_.rotations, [](const Rotation& rotation) { return rotation.spec.has_value(); });
        if (computed == report_.rotations.end()) continue;
        findings_.problem("stored-frequencies", "{} has {} frequencies, and the rotation of config.json has {}", name,
                          stored->size(), computed->frequencies.size());
        return;
      }
      if (nearest > worst_difference) {
        worst_difference = nearest;
        worst = tensor;
      }
    }
    if (worst != nullptr) report_difference(*worst, worst_difference, count);
  }

  void report_difference(const TensorView& tensor, double difference, size_t count) {
    // float32 powers are off by a few ulps, 16-bit types by half a unit; float16 loses digits below 2^-14.
    constexpr double kFloat32 = 1e-5, kBfloat16 = 0x1.1p-8, kFloat16 = 1e-2;
    const double allowed = tensor.dtype == DType::kBF16 ? kBfloat16 : tensor.dtype == DType::kF16 ? kFloat16 : kFloat32;
    const bool is_read = facts_.family != nullptr && facts_.family->model_type == "esm";
    const char* const reader = is_read ? "transformers computes with the stored ones"
                                       : "transformers and llama.cpp's converter ignore the stored ones";
    if (difference <= allowed) {
      if (difference > kFloat32) {
        findings_.note("stored-frequencies", "{} is rounded to {}, and off by up to {:.2g}; {}", tensor.name,
                       io::safetensors_name(tensor.dtype), difference, reader);
      }
      return;
    }
    const std::vector<double> stored = *numbers_of(tensor);
    const double size = static_cast<double>(2 * stored.size()), last = static_cast<double>(2 * (stored.size() - 1));
    const double base = stored.size() < 2 ? 0 : std::pow(stored.back(), -size / last);
    const std::string fit = std::isfinite(base) && base > 1 ? fmt::format(", as with a base near {:.4g}", base) : "";
    findings_.problem("stored-frequencies",
                      "{}{} differs from the frequencies of config.json, relatively by up to {:.2g}{}; {}", tensor.name,
                      count > 1 ? fmt::format(" (one of {})", count) : "", difference, fit, reader);
  }

  void check_tables() {
    const bool is_roformer = report_.model_type == "roformer";
    for (const auto& [name, tensor] : files_.tensors()) {
      if (of_another_medium(name) || tensor->shape.size() != 2) continue;
      if (is_roformer && is_named(name, "encoder.embed_positions.weight")) {
        check_sinusoids(*tensor);
      } else if (is_named(name, {"position_embeddings.weight", "wpe.weight", "embed_positions.weight"})) {
        findings_.note("learned-table", "{} [{}, {}] is a table of positions beside the rotation", name,
                       tensor->shape[0], tensor->shape[1]);
      }
    }
  }

  void check_sinusoids(const TensorView& table) {
    const int64_t rows = table.shape[0], width = table.shape[1];
    if (width != report_.head_size) {
      findings_.problem("stored-table", "{} has rows of {}, and the head size is {}", table.name, width,
                        report_.head_size);
      return;
    }
    if (rows != report_.length && report_.length > 0) {
      findings_.problem("stored-table", "{} has {} rows, and max_position_embeddings is {}", table.name, rows,
                        report_.length);
    }
    const std::optional<std::vector<double>> stored = numbers_of(table);
    if (!stored || rows == 0 || width % 2 != 0) return;
    constexpr double kSame = 1e-6;
    const double worst = position_table_error(*stored, width);
    if (worst > kSame) {
      findings_.problem("stored-table",
                        "{} differs from sines and cosines of base 10000 by up to {:.2g}; transformers "
                        "rotates by the table",
                        table.name, worst);
    }
  }

  const CheckpointFiles& files_;
  const WeightFacts& facts_;
  RotaryReport& report_;
  Findings& findings_;
};

}  // namespace

void check_weights(const CheckpointFiles& files, const WeightFacts& facts, RotaryReport& report, Findings& findings) {
  WeightChecker(files, facts, report, findings).check();
}

}  // namespace rf
