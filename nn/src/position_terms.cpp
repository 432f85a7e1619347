// Stores the terms of a model's layers in a file (position_terms.h).
#include "rf/nn/position_terms.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "rf/io/error.h"
#include "rf/model/checkpoint_files.h"
#include "rf/model/computed_encoding.h"
#include "rf/model/position_terms.h"
#include "rf/model/translation_files.h"
#include "rf/nn/encoding.h"
#include "rotary_rows.h"

namespace rf::nn {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kDefaultTokens = 2048;
constexpr int64_t kDefaultBytes = int64_t{256} << 20;  // of what save_model writes
constexpr int64_t kMaxBytes = int64_t{4} << 30;
constexpr int64_t kShortTokens = 17;                  // of a sequence whose terms are compared with the stored ones
constexpr int64_t kLongestProbed = int64_t{1} << 24;  // an encoding that reads this many tokens counts as unlimited

constexpr TranslationSide kSides[] = {TranslationSide::kEncoder, TranslationSide::kDecoder};

// What has terms: a model, or a side of an encoder-decoder.
struct TermsSource {
  const ModelConfig& config;
  const Encoding& encoding;
  std::function<std::vector<ops::Terms>(int64_t tokens)> terms;
};

TermsSource source_of(const Model& model) {
  return {model.config(), model.position_encoding(), [&model](int64_t tokens) { return model.position_terms(tokens); }};
}

// The terms of a file, and the tensors that hold their values.
struct Baked {
  PositionTerms terms;
  std::vector<at::Tensor> values;
  int64_t bytes = 0;

  void add(PositionTerms::Terms& to, const std::string& name, const DistanceTable& table) {
    if (!table.defined()) return;
    const at::Tensor value = table.rows.detach().to(at::kCPU, at::kFloat).contiguous();
    values.push_back(value);
    bytes += static_cast<int64_t>(value.nbytes());
    to[name] = {.shape = value.sizes().vec(),
                .values = {value.const_data_ptr<float>(), static_cast<size_t>(value.numel())},
                .lo = table.lo,
                .hi = table.hi};
  }
};

// The part of a term that the file holds; undefined for a rotation, which is computed when it is needed.
DistanceTable stored(const at::Tensor& numbers) { return {numbers}; }
DistanceTable stored(const DistanceTable& table) { return table; }
DistanceTable stored(const Rotation&) { return {}; }

bool same(const DistanceTable& a, const DistanceTable& b) {
  return a.lo == b.lo && a.hi == b.hi && (!a.defined() || a.rows.equal(b.rows));
}
bool is_finite(const DistanceTable& table) { return !table.defined() || at::isfinite(table.rows).all().item<bool>(); }

// Whether model/computed_encoding.h has the rotations of the model, if any.
bool computes_rotations(const ModelConfig& config) {
  return std::any_of(config.position_encodings.begin(), config.position_encodings.end(), [&](const auto& encoding) {
    const std::optional<ComputedEncoding> computed = computed_encoding(encoding, config);
    return computed && std::holds_alternative<RotarySettings>(*computed);
  });
}

bool is_of_tokens(std::string_view name) {
#define RF_IS_OF_TOKENS(term, ...) \
  if (name == #term) return true;
  RF_ATTENTION_TERMS(RF_NO_TERM, RF_NO_TERM, RF_NO_TERM, RF_NO_TERM, RF_IS_OF_TOKENS)
#undef RF_IS_OF_TOKENS
  return false;
}

std::string named(const char* name, const char* symbol) { return fmt::format("{} ({})", name, symbol); }

// The first term that a file cannot hold: numbers of tokens, rotations that only this module computes, numbers that
// are not finite, and terms of some layers only; empty: it can hold all terms.
std::string lacking_in(const std::vector<ops::Terms>& layers, const ModelConfig& config) {
  const bool has_rotations = computes_rotations(config);
  std::string found;
  ops::for_each_term([&](const char* name, const char* symbol, auto member) {
    const auto sets = [&](const ops::Terms& terms) { return (terms.*member).defined(); };
    const auto count = std::count_if(layers.begin(), layers.end(), sets);
    if (!found.empty() || count == 0) return;
    using Member = std::remove_cvref_t<decltype(layers[0].*member)>;
    const bool rotation_is_known = has_rotations && (std::string_view(name) != "value" || config.rotary_value);
    const bool is_stored = std::is_same_v<Member, Rotation> ? rotation_is_known : !is_of_tokens(name);
    if (!is_stored) found = named(name, symbol);
    if (is_stored && count != std::ssize(layers)) found = named(name, symbol) + " in some layers alone";
    const bool has_infinity = std::any_of(layers.begin(), layers.end(), [&](const ops::Terms& terms) {
      return sets(terms) && !is_finite(stored(terms.*member));
    });
    if (found.empty() && has_infinity) found = named(name, symbol) + " with a number that is not finite";
  });
  const bool one_scale = std::all_of(layers.begin(), layers.end(),
                                     [&](const ops::Terms& terms) { return terms.scale == layers[0].scale; });
  return found.empty() && !one_scale ? "a scale (s) for each layer" : found;
}

// Whether numbers [.., D] are equal up to the rounding of sums of other lengths. The tolerance of each row of the last
// dimension follows its own maximum, because a large number, such as -1e9 of a mask, tells nothing about other rows.
// Rows of one number are parts of scores, where the smallest differences do not matter.
bool near(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes()) return false;
  constexpr double kRounding = 1e-4;  // of the largest of a row
  constexpr double kSmallScore = 0.1;
  if (a.numel() == 0) return true;
  at::Tensor largest = b.abs().amax(-1, true);
  if (b.size(-1) == 1) largest = largest.clamp_min(kSmallScore);
  return (a - b).abs().le(kRounding * largest).all().item<bool>();
}

// Whether the rows that a sequence of so many tokens reads equal its own terms.
bool serves(const at::Tensor& stored, const at::Tensor& own, int64_t tokens, Direction) {
  if (stored.dim() == 1) return near(stored.unsqueeze(-1), own.unsqueeze(-1));
  if (stored.dim() < 3) return near(stored, own);  // not by position
  return std::min(stored.size(1), own.size(1)) >= tokens && near(stored.narrow(1, 0, tokens), own.narrow(1, 0, tokens));
}
bool serves(const DistanceTable& stored, const DistanceTable& own, int64_t tokens, Direction direction) {
  const int64_t nearest = direction == Direction::kCausal ? 0 : 1 - tokens;
  const at::Tensor distances_R = at::arange(nearest, tokens, at::kLong);
  const auto rows = [&](const DistanceTable& table) {
    const at::Tensor read = table.rows.index_select(1, distances_R.clamp(table.lo, table.hi) - table.lo);
    return read.dim() == 2 ? read.unsqueeze(-1) : read;
  };
  return near(rows(stored), rows(own));
}
bool serves(const Rotation&, const Rotation&, int64_t, Direction) { return true; }

// The first term whose rows for a short sequence are not among those for the length of `layers`; empty: none is.
std::string changing_with_length(const TermsSource& model, const std::vector<ops::Terms>& layers, int64_t length) {
  const Direction direction = model.config.is_causal() ? Direction::kCausal : Direction::kBidirectional;
  std::string found;
  for (const int64_t tokens : {int64_t{1}, int64_t{2}, std::min(kShortTokens, length / 2)}) {
    if (tokens < 1 || tokens >= length || !found.empty()) continue;
    const std::vector<ops::Terms> own = model.terms(tokens);
    if (layers[0].scale != own[0].scale) return "a scale (s) that changes with the length";
    ops::for_each_term([&](const char* name, const char* symbol, auto member) {
      for (size_t i = 0; i < layers.size() && found.empty(); ++i) {
        const auto &of_long = layers[i].*member, &of_short = own[i].*member;
        const bool is_set = of_long.defined();
        if (is_set == of_short.defined() && (!is_set || serves(of_long, of_short, tokens, direction))) continue;
        found = fmt::format("{} that changes with the length", named(name, symbol));
      }
    });
  }
  return found;
}

Baked bake(const std::vector<ops::Terms>& layers) {
  Baked baked;
  baked.terms.layers.resize(layers.size());
  baked.terms.scale = layers[0].scale;
  ops::for_each_term([&](const char* name, const char*, auto member) {
    const auto& first = layers[0].*member;
    if (!first.defined()) return;
    const bool shared = std::all_of(layers.begin(), layers.end(), [&](const ops::Terms& terms) {
      return same(stored(terms.*member), stored(first));
    });
    if (shared) return baked.add(baked.terms.shared, name, stored(first));
    for (size_t i = 0; i < layers.size(); ++i) baked.add(baked.terms.layers[i], name, stored(layers[i].*member));
  });
  return baked;
}

// Adds the frequencies of rotations of precision float32, which torch's operators define.
void add_frequencies(Baked& baked, const ModelConfig& config) {
  for (const EncodingConfig& encoding : config.position_encodings) {
    const std::optional<ComputedEncoding> computed = computed_encoding(encoding, config);
    const auto* rotary = computed ? std::get_if<RotarySettings>(&*computed) : nullptr;
    if (rotary == nullptr || rotary->trained != TrainedFrequencies::kNone ||
        rotary->spec.precision == RopePrecision::kExact)
      continue;
    const RopeSpec& spec = rotary->spec;
    const at::Tensor within = float32_frequencies(spec, 0);
    const bool is_long = spec.type == RopeType::kLongrope;
    const at::Tensor rows =
        is_long ? at::stack({within, float32_frequencies(spec, spec.trained_length + 1)}) : within.unsqueeze(0);
    baked.add(baked.terms.shared, "rotary_frequencies", {rows});
  }
}

// The longest sequence whose rows fit into so many bytes, at least 1.
int64_t fitting(const TermsSource& model, int64_t longest, int64_t bytes) {
  if (longest < 2) return 1;
  const auto bytes_of = [&](int64_t tokens) { return bake(model.terms(tokens)).bytes; };
  const int64_t one = bytes_of(1), slope = bytes_of(2) - one;
  if (slope <= 0) return kAllTokens;
  return 1 + std::max<int64_t>(0, bytes - one) / slope;
}

int64_t chosen_tokens(const TermsSource& model, int64_t longest, std::optional<int64_t> asked) {
  if (asked && (*asked < 1 || *asked > longest)) {
    fail<ArgumentError>(
        "position_terms", "the length must be at least 1{}, got {}",
        longest == kAllTokens ? "" : fmt::format(" and at most the {} that the position encoding reads", longest),
        *asked);
  }
  const int64_t last = model.encoding.last_new_length(), all = std::min(last, longest);
  const int64_t fits = fitting(model, longest, kDefaultBytes);
  if (last != INT64_MAX && all <= fits) return all;
  if (!asked) return std::min({std::max(model.config.max_position_embeddings, kDefaultTokens), fits, all});
  const int64_t most = fitting(model, longest, kMaxBytes);
  if (*asked > most) {
    fail<ArgumentError>("position_terms", "the rows of terms must fit into {} GiB, which is a length of {}, got {}",
                        kMaxBytes >> 30, most, *asked);
  }
  return std::min(*asked, all);
}

// The terms for the longest of the wanted lengths that the encoding has rows for. One that is written in Python may
// have a table whose end it does not say: it then fails at the usual length, and has that of the model.
std::pair<int64_t, std::vector<ops::Terms>> terms_for(const TermsSource& model, int64_t chosen, bool is_asked) {
  const int64_t positions = model.config.max_position_embeddings;
  if (is_asked || positions >= chosen) return {chosen, model.terms(chosen)};
  try {
    return {chosen, model.terms(chosen)};
  } catch (const std::exception&) {
    return {positions, model.terms(positions)};
  }
}

ServedTerms terms_served_by(const TermsSource& model, std::optional<int64_t> asked) {
  const auto lacking = [](std::string what) { return ServedTerms{.lacking = std::move(what)}; };
  if (const char* what = model.encoding.beyond_terms()) return lacking(what);
  if (model.encoding.reads_vectors()) return lacking("terms that depend on queries and keys");
  if (std::string what = lacking_in(model.terms(1), model.config); !what.empty()) return lacking(what);
  if (model.encoding.numbers_per_token() > 0) return lacking("terms that depend on tokens");
  const int64_t longest = longest_length(model.encoding);
  auto [tokens, layers] = terms_for(model, chosen_tokens(model, longest, asked), asked.has_value());
  if (std::string what = lacking_in(layers, model.config); !what.empty()) return lacking(what);
  if (std::string what = changing_with_length(model, layers, tokens); !what.empty()) return lacking(what);
  return {.lacking = {},
          .layers = std::move(layers),
          .tokens = tokens >= model.encoding.last_new_length() ? longest : tokens,
          .longest = longest};
}

// The place of a file, and the hash of the weights and configuration that its terms are made from.
struct TermsTarget {
  std::string model_dir, file, hash;
};

// Writes the file; returns the term that it cannot hold, whose name is then its only content.
std::string write_terms(const TermsSource& model, const TermsTarget& target, std::optional<int64_t> asked,
                        SavedTerms& saved) {
  const ServedTerms served = terms_served_by(model, asked);
  if (!served.lacking.empty()) {
    write_position_terms(target.model_dir, {.shared = {}, .layers = {}, .scale = {}, .lacking = served.lacking},
                         target.hash, target.file);
    return served.lacking;
  }
  Baked baked = bake(served.layers);
  add_frequencies(baked, model.config);
  saved.tokens = std::min(saved.tokens, served.tokens);
  saved.longest = std::min(saved.longest, served.longest);
  saved.bytes += baked.bytes;
  baked.terms.longest = served.longest;
  baked.terms.tokens = served.tokens;
  baked.terms.reads_projections = model.encoding.reads_projections();
  write_position_terms(target.model_dir, baked.terms, target.hash, target.file);
  return {};
}

std::string write_terms(const Model& model, const std::string& model_dir, std::optional<int64_t> asked,
                        SavedTerms& saved) {
  const CheckpointFiles weights(model_dir, "save_position_terms");
  const TermsTarget target{model_dir, kPositionTermsFile, position_terms_hash(model.config(), weights.tensors())};
  return write_terms(source_of(model), target, asked, saved);
}

// Writes the terms of both sides.
std::string write_terms(const TranslationModel& model, const std::string& model_dir, std::optional<int64_t> asked,
                        SavedTerms& saved) {
  const CheckpointFiles weights(model_dir, "save_position_terms");
  std::string lacking;
  for (const TranslationSide side : kSides) {
    const ModelConfig& config = model.config_of(side);
    const TermsSource source{config, model.position_encoding(side),
                             [&](int64_t tokens) { return model.position_terms(side, tokens); }};
    const TermsTarget target{model_dir, side_terms_file(side),
                             position_terms_hash(config, side_tensors(weights, model.config(), side))};
    if (const std::string what = write_terms(source, target, asked, saved); lacking.empty()) lacking = what;
  }
  return lacking;
}

void remove_file(const std::string& model_dir, const std::string& file) {
  std::error_code error;
  fs::remove(fs::path(model_dir) / file, error);
  if (error) fail("save_model", "the model directory must be writable, got {} for {}", error.message(), model_dir);
}

}  // namespace

bool reads_length(const Encoding& encoding, int64_t tokens) {
  try {
    encoding.check_length(tokens);
    return true;
  } catch (const Error&) {
    return false;
  }
}

int64_t longest_length(const Encoding& encoding) {
  if (reads_length(encoding, kLongestProbed)) return kAllTokens;
  int64_t read = 0, refused = kLongestProbed;
  while (refused - read > 1) {
    const int64_t middle = read + (refused - read) / 2;
    (reads_length(encoding, middle) ? read : refused) = middle;
  }
  return read;
}

ServedTerms served_terms(const Model& model, std::optional<int64_t> asked) {
  return terms_served_by(source_of(model), asked);
}

void remove_position_terms(const std::string& model_dir) {
  remove_file(model_dir, kPositionTermsFile);
  for (const TranslationSide side : kSides) remove_file(model_dir, side_terms_file(side));
}

std::optional<SavedTerms> save_position_terms(const Model& model, const std::string& model_dir,
                                              std::optional<int64_t> tokens) {
  const c10::NoGradGuard no_grad;
  remove_position_terms(model_dir);
  SavedTerms saved;
  if (!needs_position_terms(model.config())) return std::nullopt;
  return write_terms(model, model_dir, tokens, saved).empty() ? std::optional(saved) : std::nullopt;
}

std::optional<SavedTerms> save_position_terms(const TranslationModel& model, const std::string& model_dir,
                                              std::optional<int64_t> tokens) {
  const c10::NoGradGuard no_grad;
  remove_position_terms(model_dir);
  SavedTerms saved;
  if (!needs_position_terms(model.config_of(TranslationSide::kDecoder))) return std::nullopt;
  return write_terms(model, model_dir, tokens, saved).empty() ? std::optional(saved) : std::nullopt;
}

std::optional<SavedTerms> save_position_terms(const std::string& model_dir, std::optional<int64_t> tokens) {
  const c10::NoGradGuard no_grad;
  const auto save = [&](const auto& model, const ModelConfig& config) -> std::optional<SavedTerms> {
    if (!needs_position_terms(config)) return save_position_terms(model, model_dir, tokens);
    SavedTerms saved;
    const std::string lacking = write_terms(model, model_dir, tokens, saved);
    if (lacking.empty()) return saved;
    fail("position_terms", "terms must be rows by distance or by position, got {} from the position encoding", lacking);
  };
  if (is_own_translation(model_dir)) {
    const auto model = load_translation_model(model_dir, at::kFloat);
    return save(*model, model->config_of(TranslationSide::kDecoder));
  }
  const std::shared_ptr<const Model> model = load_model(model_dir, std::nullopt, at::kFloat);
  return save(*model, model->config());
}

}  // namespace rf::nn
