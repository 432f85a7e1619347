// The file of position terms (position_terms.h).
#include "rf/model/position_terms.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <string_view>
#include <utility>

#include "rf/attention_terms.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/printable.h"
#include "rf/io/shown_text.h"
#include "rf/model/linear_attention_config.h"
#include "rf/model/weights.h"

namespace rf {

namespace {

namespace fs = std::filesystem;

constexpr const char* kFormat = "roformer position terms 1";
constexpr const char* kFrequencies = "rotary_frequencies";
constexpr std::string_view kLayerPrefix = "layers.";

enum class Kind { kTable, kNumbers, kPair };
enum class Width { kHeadDim, kValueDim, kOne, kHeadDimOrOne };

// A term of the list.
struct Known {
  const char* name;
  Kind kind;
  Width width;
  const char* partner;  // of a pair
};

#define RF_KNOWN_TABLE(name, symbol, width) {#name, Kind::kTable, Width::k##width, nullptr},
#define RF_KNOWN_NUMBERS(name, symbol, width) {#name, Kind::kNumbers, Width::k##width, nullptr},
#define RF_KNOWN_PAIR(query_name, query_symbol, key_name, key_symbol) \
  {#query_name, Kind::kPair, Width::kHeadDim, #key_name}, {#key_name, Kind::kPair, Width::kHeadDim, #query_name},
constexpr Known kKnown[] = {
    RF_ATTENTION_TERMS(RF_NO_TERM, RF_KNOWN_TABLE, RF_KNOWN_NUMBERS, RF_KNOWN_PAIR, RF_NO_TERM)};
#undef RF_KNOWN_TABLE
#undef RF_KNOWN_NUMBERS
#undef RF_KNOWN_PAIR

const Known* known_term(std::string_view name) {
  const Known* found =
      std::find_if(std::begin(kKnown), std::end(kKnown), [&](const Known& k) { return k.name == name; });
  return found == std::end(kKnown) ? nullptr : found;
}

std::string path_in(const std::string& model_dir, const std::string& file) {
  return (fs::path(model_dir) / file).string();
}

std::string length_text(int64_t tokens) { return tokens == kAllTokens ? "all" : std::to_string(tokens); }

bool is_source(const std::string& name) {
  if (name.starts_with(kEncodingPrefix)) return true;
  for (const char* part : {"query", "key", "value"}) {
    for (const char* kind : {"weight", "bias"}) {
      if (name.ends_with(fmt::format(".attention.self.{}.{}", part, kind))) return true;
    }
  }
  return false;
}

// The term of a tensor's name, and its layer; -1: shared by all layers.
std::pair<std::string, int64_t> term_of(const std::string& name, int64_t layers, const std::string& path) {
  if (!name.starts_with(kLayerPrefix)) return {name, -1};
  const char* begin = name.data() + kLayerPrefix.size();
  int64_t layer = -1;
  const auto [end, error] = std::from_chars(begin, name.data() + name.size(), layer);
  if (error != std::errc() || *end != '.' || layer < 0 || layer >= layers)
    fail(path, "a term must be of one of the {} layers, got {}", layers, io::printable(name));
  return {end + 1, layer};
}

// Reads a file and reports where it is wrong.
class TermsReader {
 public:
  TermsReader(const io::SafetensorsFile& file, const ModelConfig& config, std::string path)
      : file_(file), config_(config), path_(std::move(path)) {}

  PositionTerms read() {
    PositionTerms terms;
    terms.tokens = length("tokens");
    terms.longest = length("longest");
    terms.reads_projections = file_.metadata().contains("reads");
    if (const auto scale = file_.metadata().find("scale"); scale != file_.metadata().end()) {
      terms.scale = number<double>(scale->second, "scale");
      if (!std::isfinite(*terms.scale)) fail(path_, "scale must be finite, got {}", scale->second);
    }
    terms.layers.resize(static_cast<size_t>(config_.num_hidden_layers));
    for (const io::TensorView& view : file_.tensors()) {
      const auto [name, layer] = term_of(view.name, config_.num_hidden_layers, path_);
      PositionTerms::Terms& to = layer < 0 ? terms.shared : terms.layers[static_cast<size_t>(layer)];
      to.emplace(name, read_term(view, name));
    }
    check_layers(terms);
    return terms;
  }

 private:
  const std::string& entry(const std::string& key) const {
    const auto found = file_.metadata().find(key);
    if (found == file_.metadata().end()) fail(path_, "the metadata must have {}, got none", key);
    return found->second;
  }

  template <class T>
  T number(std::string_view text, const std::string& key) const {
    T value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size())
      fail(path_, "{} must be a number, got {}", key, io::printable(std::string(text)));
    return value;
  }

  int64_t length(const std::string& key) const {
    const std::string& text = entry(key);
    if (text == "all") return kAllTokens;
    const auto tokens = number<int64_t>(text, key);
    if (tokens < 1) fail(path_, "{} must be at least 1, got {}", key, tokens);
    return tokens;
  }

  PositionTerms::Term read_term(const io::TensorView& view, const std::string& name) const {
    const Known* known = known_term(name);
    if (known == nullptr && name != kFrequencies)
      fail(path_, "tensors must be terms of attention, got {}", io::printable(view.name));
    if (view.dtype != io::DType::kF32)
      fail(path_, "terms must be F32, got {} for {}", io::safetensors_name(view.dtype), view.name);
    if (reinterpret_cast<uintptr_t>(view.data.data()) % alignof(float) != 0)
      fail(path_, "data must begin at a multiple of {} bytes, got {} elsewhere", alignof(float), view.name);
    PositionTerms::Term term{
        .shape = view.shape,
        .values = {reinterpret_cast<const float*>(view.data.data()), view.data.size() / sizeof(float)}};
    if (known != nullptr && known->kind == Kind::kTable) std::tie(term.lo, term.hi) = range(name);
    if (!fits(known, term)) {
      fail(path_, "{} must fit {} heads of {} and its range {}..{}, got the shape [{}]", view.name,
           config_.num_attention_heads, config_.head_dim(), term.lo, term.hi, fmt::join(view.shape, ", "));
    }
    const auto bad = std::find_if(term.values.begin(), term.values.end(), [](float x) { return !std::isfinite(x); });
    if (bad != term.values.end())
      fail(path_, "terms must be finite, got {} in {} at element {}", *bad, view.name, bad - term.values.begin());
    return term;
  }

  std::pair<int64_t, int64_t> range(const std::string& name) const {
    const std::string key = name + ".range", &text = entry(key);
    const size_t space = std::min(text.find(' '), text.size());
    const std::string_view both = text;
    const auto lo = number<int64_t>(both.substr(0, space), key);
    const auto hi = number<int64_t>(both.substr(std::min(space + 1, text.size())), key);
    constexpr int64_t kFarthest = int64_t{1} << 53;
    if (lo > hi || lo < -kFarthest || hi > kFarthest)
      fail(path_, "{} must be two distances, the lower first, got {}", key, io::printable(text));
    return {lo, hi};
  }

  bool fits(const Known* known, const PositionTerms::Term& term) const {
    const int64_t heads = config_.num_attention_heads, dim = config_.head_dim();
    const std::vector<int64_t>& shape = term.shape;
    if (known == nullptr)
      return shape.size() == 2 && (shape[0] == 1 || shape[0] == 2) && 2 * shape[1] <= rotated_dim(config_);
    const size_t of_width = known->width == Width::kOne ? 0 : 1;
    const size_t dims = (known->kind == Kind::kNumbers ? 1 : 2) + of_width;
    if (shape.size() != dims) return false;
    const bool one_head = known->kind == Kind::kTable && shape[0] == 1;
    const bool one_wide = known->width == Width::kHeadDimOrOne && shape.back() == 1;
    if (shape[0] != heads && !one_head) return false;
    if (of_width == 1 && shape.back() != dim && !one_wide) return false;
    if (known->kind == Kind::kTable) return shape[1] == term.hi - term.lo + 1;
    return known->kind == Kind::kNumbers || shape[1] >= 1;
  }

  // Every layer has the same terms, each once.
  void check_layers(const PositionTerms& terms) const {
    for (const PositionTerms::Terms& layer : terms.layers) {
      for (const auto& [name, term] : layer) {
        if (terms.shared.contains(name)) fail(path_, "{} must be of all layers or of each, got both", name);
        for (const PositionTerms::Terms& other : terms.layers) {
          if (!other.contains(name)) fail(path_, "{} must be there for each of the layers, got one without it", name);
        }
        check_pair(name, term, layer, terms);
      }
    }
    for (const auto& [name, term] : terms.shared) check_pair(name, term, terms.shared, terms);
  }

  void check_pair(const std::string& name, const PositionTerms::Term& term, const PositionTerms::Terms& of,
                  const PositionTerms& terms) const {
    const Known* known = known_term(name);
    if (known == nullptr || known->kind != Kind::kPair) return;
    const auto partner = of.find(known->partner);
    if (partner == of.end() || partner->second.shape != term.shape)
      fail(path_, "{} and {} must be given together with one shape, got only one of them so", name, known->partner);
    if (term.shape[1] < terms.tokens) {
      fail(path_, "{} must have a row for each of the {} tokens, got {}", name, length_text(terms.tokens),
           term.shape[1]);
    }
  }

  const io::SafetensorsFile& file_;
  const ModelConfig& config_;
  std::string path_;
};

io::SafetensorsFile open_file(const std::string& model_dir, const std::string& file) {
  const std::string path = path_in(model_dir, file);
  if (!io::has_file(path)) {
    fail("position_terms", "a model with this position encoding must have {} in its directory, got none in {}; {}",
         file, model_dir, bake_command(model_dir));
  }
  return io::SafetensorsFile(path);
}

}  // namespace

std::string bake_command(const std::string& model_dir, std::optional<int64_t> tokens) {
  return fmt::format("roformer bake --model {}{} writes it", io::shell_word(model_dir),
                     tokens ? fmt::format(" --length {}", *tokens) : "");
}

std::string position_terms_hash(const ModelConfig& config,
                                const std::map<std::string, const io::TensorView*>& tensors) {
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  const auto add = [&](std::string_view text) {
    XXH3_128bits_update(&state, text.data(), text.size());
    XXH3_128bits_update(&state, "\n", 1);
  };
  for (const EncodingConfig& encoding : config.position_encodings) {
    add(encoding.type);
    add(encoding.options);
  }
  add(fmt::format("{} {} {} {} {}", config.num_hidden_layers, config.num_attention_heads, config.hidden_size,
                  config.max_position_embeddings, config.is_causal()));
  for (const auto& [name, view] : tensors) {
    if (!is_source(name)) continue;
    add(name);
    XXH3_128bits_update(&state, view->data.data(), view->data.size());
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(&state);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

void write_position_terms(const std::string& model_dir, const PositionTerms& terms, const std::string& hash,
                          const std::string& file) {
  const std::string path = path_in(model_dir, file);
  std::map<std::string, std::string> metadata = {{"format", kFormat}, {"weights", hash}};
  if (!terms.lacking.empty()) {
    metadata["lacking"] = terms.lacking;
    return io::write_safetensors(path, {}, metadata);
  }
  metadata["tokens"] = length_text(terms.tokens);
  metadata["longest"] = length_text(terms.longest);
  if (terms.reads_projections) metadata["reads"] = "projections";
  if (terms.scale) metadata["scale"] = fmt::format("{}", *terms.scale);
  std::vector<io::TensorView> views;
  const auto add = [&](const std::string& prefix, const PositionTerms::Terms& of) {
    for (const auto& [name, term] : of) {
      views.push_back({prefix + name, io::DType::kF32, term.shape, std::as_bytes(term.values)});
      const Known* known = known_term(name);
      if (known != nullptr && known->kind == Kind::kTable)
        metadata[name + ".range"] = fmt::format("{} {}", term.lo, term.hi);
    }
  };
  add("", terms.shared);
  for (size_t i = 0; i < terms.layers.size(); ++i) add(fmt::format("{}{}.", kLayerPrefix, i), terms.layers[i]);
  io::write_safetensors(path, views, metadata);
}

PositionTermsFile::PositionTermsFile(const std::string& model_dir, const ModelConfig& config, const std::string& hash,
                                     const std::string& file)
    : file_(open_file(model_dir, file)) {
  const std::string path = path_in(model_dir, file);
  const auto& metadata = file_.metadata();
  const auto format = metadata.find("format"), weights = metadata.find("weights");
  if (format == metadata.end() || format->second != kFormat) {
    fail(path, "format must be \"{}\", got {}", kFormat,
         format == metadata.end() ? "none" : io::printable(format->second));
  }
  if (weights == metadata.end() || weights->second != hash) {
    fail(path,
         "the terms must be made from the weights and the configuration of this directory, got those of others; {}",
         bake_command(model_dir));
  }
  if (const auto lacking = metadata.find("lacking"); lacking != metadata.end()) {
    fail("position_terms",
         "without PyTorch, terms must be rows by distance or by position, got {} from the position encoding of {}",
         io::printable(lacking->second), model_dir);
  }
  terms_ = TermsReader(file_, config, path).read();
}

}  // namespace rf
