// The report of a GGUF file (parts.h). The behaviour of llama.cpp is taken from its sources of 2025 and 2026
// (llama-model.cpp: llama_model_rope_type, load_hparams; ggml: rope_yarn).
#include "rf/io/gguf.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "parts.h"
#include "rf/io/error.h"
#include "rf/io/printable.h"

namespace rf {
namespace {

using nlohmann::json;

// Architectures by llama_model_rope_type: NORM, NEOX, none. Architectures with separate axes for text and image are not
// included.
constexpr std::string_view kPairArchitectures[] = {
    "llama",      "llama4",        "deci",      "baichuan",   "starcoder", "internlm2",   "minicpm",   "xverse",
    "command-r",  "cohere2",       "olmo",      "arctic",     "deepseek",  "deepseek2",   "chatglm",   "granite",
    "granitemoe", "granitehybrid", "chameleon", "bailingmoe", "plm",       "neo-bert",    "smollm3",   "arcee",
    "ernie4_5",   "ernie4_5-moe",  "llada",     "mistral3",   "mistral4",  "llama-embed", "maincoder", "glm-dsa"};
constexpr std::string_view kHalfArchitectures[] = {
    "falcon",     "falcon-h1",      "grok",     "dbrx",           "bert",         "jina-bert-v3", "modern-bert",
    "nomic-bert", "nomic-bert-moe", "eurobert", "stablelm",       "bitnet",       "qwen",         "qwen2",
    "dream",      "qwen2moe",       "qwen3",    "qwen3moe",       "qwen3next",    "llada-moe",    "rnd1",
    "olmo2",      "olmoe",          "phi2",     "phi3",           "phimoe",       "plamo",        "plamo2",
    "plamo3",     "gemma",          "gemma2",   "gemma3",         "gemma3n",      "gemma4",       "gemma-embedding",
    "starcoder2", "openelm",        "gptneox",  "codeshell",      "orion",        "nemotron",     "exaone",
    "exaone4",    "exaone-moe",     "minicpm3", "bailingmoe2",    "dots1",        "hunyuan-moe",  "jais2",
    "gpt-oss",    "hunyuan-dense",  "lfm2",     "lfm2moe",        "smallthinker", "seed_oss",     "grovemoe",
    "apertus",    "minimax-m2",     "cogvlm",   "pangu-embedded", "afmoe",        "mimo2",        "step35"};
constexpr std::string_view kUnrotatedArchitectures[] = {
    "clip",       "gpt2",          "gptj",       "mpt",          "refact", "bloom",
    "mamba",      "mamba2",        "jamba",      "jina-bert-v2", "t5",     "t5encoder",
    "jais",       "rwkv6",         "rwkv6qwen2", "rwkv7",        "arwkv7", "wavtokenizer-dec",
    "nemotron_h", "nemotron_h_moe"};
// Architectures that llama.cpp refuses with partial rotation.
constexpr std::string_view kWholeArchitectures[] = {"llama", "deci", "falcon", "llama-embed"};

bool is_one_of(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

class GgufReport {
 public:
  GgufReport(const io::GgufFile& file, RotaryReport& report)
      : file_(file), report_(report), findings_(report.findings), keys_(file.metadata(), report.path, "") {}

  void read() {
    report_.version = file_.version();
    report_.tensors = std::ssize(file_.tensors());
    report_.model_type = keys_.text("general.architecture");
    if (report_.model_type.empty()) fail(report_.path, "general.architecture must be given, got none");
    if (is_one_of(kUnrotatedArchitectures, report_.model_type)) {
      fail(report_.path, "the model must rotate queries and keys, got {}, which llama.cpp does not rotate",
           io::printable(report_.model_type));
    }
    read_sizes();
    add("all", "rope.freq_base", "rope.dimension_count", report_.head_size);
    const json* const local = given(file_.metadata(), key("rope.freq_base_swa"));
    if (local != nullptr || has_local_base()) {
      report_.rotations[0].layers = "full_attention";
      add("sliding_attention", "rope.freq_base_swa", "rope.dimension_count_swa", local_head_size_);
    }
    if (has_unrotated()) add_unrotated();
  }

 private:
  std::string key(std::string_view name) const { return fmt::format("{}.{}", report_.model_type, name); }
  int64_t integer(std::string_view name, int64_t low, int64_t high) const {
    return keys_.integer({key(name).c_str()}, low, high);
  }

  // One number for all layers; 0 if it is absent, or if layers differ.
  int64_t of_layers(std::string_view name) const {
    const json* const value = given(file_.metadata(), key(name));
    if (value == nullptr || !value->is_array()) return integer(name, 0, kMaxHeads);
    const bool same =
        !value->empty() && std::ranges::all_of(*value, [&](const json& each) { return each == value->front(); });
    if (!same || !value->front().is_number_integer()) return 0;
    const auto count = value->front().get<int64_t>();
    return count < 0 || count > kMaxHeads ? 0 : count;
  }

  // Layers with windows have base 10000 and no scaling unless the file says otherwise.
  bool has_local_base() const { return report_.model_type == "gemma3" || report_.model_type == "gemma-embedding"; }
  // llama.cpp does not rotate the layers without a window: every fourth layer if the file does not list them.
  void add_unrotated() {
    const json* const pattern = given(file_.metadata(), key("attention.sliding_window_pattern"));
    const bool lists = pattern != nullptr && pattern->is_array();
    for (int64_t i = 0; i < report_.layers; ++i) {
      const auto at = static_cast<size_t>(i);
      const bool slides = lists ? at < pattern->size() && (*pattern)[at] != false && (*pattern)[at] != 0 : i % 4 != 3;
      if (!slides) report_.unrotated_layers.push_back(i);
    }
  }
  bool has_unrotated() const {
    const bool has_windows = given(file_.metadata(), key("attention.sliding_window")) != nullptr;
    return report_.model_type == "smollm3" || report_.model_type == "cohere2" ||
           (report_.model_type == "exaone4" && has_windows);
  }

  void read_sizes() {
    report_.layers = integer("block_count", 0, kMaxReportedLayers);
    report_.length = integer("context_length", 1, kMaxReportedLength);
    report_.heads = of_layers("attention.head_count");
    report_.kv_heads = of_layers("attention.head_count_kv");
    const int64_t width = integer("embedding_length", 1, kMaxWidth);
    report_.head_size = integer("attention.key_length", 1, kMaxHeadSize);
    if (report_.head_size == 0 && report_.heads > 0) report_.head_size = width / report_.heads;
    if (report_.head_size == 0 || report_.head_size > kMaxHeadSize) {
      fail(report_.path, "{} must be given, or {} and {}, got a head size of {}", key("attention.key_length"),
           key("embedding_length"), key("attention.head_count"), report_.head_size);
    }
    local_head_size_ = integer("attention.key_length_swa", 1, kMaxHeadSize);
    if (local_head_size_ == 0) local_head_size_ = report_.head_size;
    if (report_.length == 0)
      findings_.note("length", "{} is absent, so that errors of angles are not known", key("context_length"));
  }

  void add(const char* layers, const char* base_key, const char* size_key, int64_t head_size) {
    RotationShape shape;
    shape.file = report_.path;
    shape.model_type = report_.model_type;
    shape.reader = "llama.cpp";
    shape.length_key = key("context_length");
    shape.original_key = "original_context_length";
    shape.scalings = {"default", "linear", "yarn", "longrope"};
    shape.length = report_.length;
    shape.head_size = head_size;
    shape.rotary_dim = integer(size_key, 1, kMaxHeadSize);
    const bool latent = is_one_of(kLatentArchitectures, report_.model_type);
    if (shape.rotary_dim == 0) shape.rotary_dim = head_size;
    if (!latent && shape.rotary_dim != head_size && is_one_of(kWholeArchitectures, report_.model_type)) {
      findings_.problem("rotary-size", "{} is {}, and llama.cpp refuses a {} whose heads, of {}, do not rotate whole",
                        key(size_key), shape.rotary_dim, report_.model_type, head_size);
    }
    const bool is_local = has_local_base() && !report_.rotations.empty();
    if (given(file_.metadata(), key(base_key)) == nullptr && !is_local)
      findings_.note("base", "{} is absent, so that llama.cpp takes 10000", key(base_key));
    shape.base = keys_.number(key(base_key).c_str(), RopeSpec().theta, {0, 1e100, io::NumberRange::Ends::kOpenLow});
    const json dictionary = is_local ? json::object() : scaling(shape);
    Rotation rotation = read_rotation(dictionary, report_.model_type + ".rope.scaling", shape, findings_);
    if (dictionary.contains("rope_type")) rotation.scaling = scaling_name_;
    if (!is_computed_) rotation.spec.reset();
    rotation.layers = layers;
    if (is_one_of(kPairArchitectures, report_.model_type)) rotation.layout = RotaryLayout::kPairs;
    if (is_one_of(kHalfArchitectures, report_.model_type)) rotation.layout = RotaryLayout::kHalves;
    if (!rotation.layout && report_.rotations.empty()) {
      findings_.note("unknown-model-type", "{} is not in the table of architectures, so that its pairing is not known",
                     report_.model_type);
    }
    report_.rotations.push_back(std::move(rotation));
  }

  // Translates the keys of llama.cpp to those used by transformers.
  json scaling(const RotationShape& shape) {
    json dictionary = json::object();
    const json* const named = given(file_.metadata(), key("rope.scaling.type"));
    std::string type = named == nullptr ? "" : keys_.text(key("rope.scaling.type").c_str());
    const double old_factor = keys_.number(key("rope.scale_linear").c_str(), 0, kFactorRange);
    const double factor = keys_.number(key("rope.scaling.factor").c_str(), old_factor, kFactorRange);
    if (type.empty() && factor != 0) {
      findings_.note("scaling-type", "{} is absent and {} is {}, so that llama.cpp scales linearly",
                     key("rope.scaling.type"), key("rope.scaling.factor"), factor);
      type = "linear";
    }
    const int64_t trained = integer("rope.scaling.original_context_length", 2, kMaxReportedLength);
    if (add_divisors(shape, type, factor, trained, dictionary)) return dictionary;
    if (type.empty() || type == "none" || (type == "linear" && factor == 0)) return dictionary;
    scaling_name_ = type;
    dictionary["rope_type"] = type;
    if (factor != 0) dictionary["factor"] = factor;
    if (type == "yarn") add_yarn(factor, trained, dictionary);
    return dictionary;
  }

  void add_yarn(double factor, int64_t trained, json& dictionary) const {
    if (trained != 0) dictionary["original_max_position_embeddings"] = trained;
    for (const auto& [name, ours] : {std::pair("rope.scaling.yarn_beta_fast", "beta_fast"),
                                     std::pair("rope.scaling.yarn_beta_slow", "beta_slow")}) {
      const double value = keys_.number(key(name).c_str(), 0, {0, 1e9});
      if (value != 0) dictionary[ours] = value;
    }
    const double scale = keys_.number(key("rope.scaling.attn_factor").c_str(), 1, {0, 1e6});
    const double yarn_scale = keys_.number(key("rope.scaling.yarn_attn_factor").c_str(), 1, {0, 1e6});
    if (scale != 1 || yarn_scale != 1)
      dictionary["attention_factor"] = scale * yarn_scale * (factor > 1 ? 1 + 0.1 * std::log(factor) : 1);
  }

  void note_divisors(const std::string& type) {
    is_computed_ = type != "yarn";
    findings_.note("stored-divisors", "rope_freqs.weight divides the frequencies, as the scaling llama3 does{}",
                   is_computed_ ? "" : "; with scaling yarn they are not computed here");
  }

  static std::vector<double> scaled(const std::vector<float>& divisors, double scale) {
    std::vector<double> products(divisors.begin(), divisors.end());
    for (double& each : products) each *= scale;
    return products;
  }

  // Divisors of the frequencies that are stored as tensors, for llama3 (rope_freqs) and longrope.
  bool add_divisors(const RotationShape& shape, const std::string& type, double factor, int64_t trained,
                    json& dictionary) {
    const io::GgufTensor* const all = file_.find("rope_freqs.weight");
    const io::GgufTensor* const of_short = file_.find("rope_factors_short.weight");
    const io::GgufTensor* const of_long = file_.find("rope_factors_long.weight");
    const bool pair = of_short != nullptr && of_long != nullptr;
    if (all == nullptr && !pair) return false;
    if (!pair) note_divisors(type);
    scaling_name_ = pair ? "longrope" : type.empty() || type == "none" ? "rope_freqs.weight" : type;
    dictionary["rope_type"] = "longrope";
    const double scale = !pair && type == "linear" && factor != 0 ? factor : 1;
    dictionary["short_factor"] = scaled(file_.numbers(pair ? *of_short : *all), scale);
    dictionary["long_factor"] = scaled(file_.numbers(pair ? *of_long : *all), scale);
    const int64_t fallback = std::max<int64_t>(shape.length, 2);
    dictionary["original_max_position_embeddings"] = trained != 0 ? trained : fallback;
    dictionary["attention_factor"] = keys_.number(key("rope.scaling.attn_factor").c_str(), 1, {0, 1e6, kOpen});
    return true;
  }

  static constexpr auto kOpen = io::NumberRange::Ends::kOpenLow;
  static constexpr io::NumberRange kFactorRange = {0, 1e9};
  static constexpr std::string_view kLatentArchitectures[] = {"deepseek2", "minicpm3", "plm", "glm-dsa", "mistral4"};

  const io::GgufFile& file_;
  RotaryReport& report_;
  Findings findings_;
  Keys keys_;
  int64_t local_head_size_ = 0;
  std::string scaling_name_;
  bool is_computed_ = true;
};

}  // namespace

RotaryReport report_of_gguf(const std::string& path) { return report_of_gguf(io::GgufFile(path), path); }

RotaryReport report_of_gguf(const io::GgufFile& file, const std::string& path) {
  RotaryReport report;
  report.path = path;
  report.format = "GGUF";
  GgufReport(file, report).read();
  for (Rotation& rotation : report.rotations) complete(rotation, report.length);
  Findings findings(report.findings);
  note_angles(report, findings);
  return report;
}

}  // namespace rf
