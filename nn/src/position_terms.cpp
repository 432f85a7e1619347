// From the terms of a model's layers to the file of them (position_terms.h).
#include "rf/nn/position_terms.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "rf/io/error.h"
#include "rf/model/checkpoint_files.h"
#include "rf/model/computed_encoding.h"
#include "rf/model/position_terms.h"
#include "rf/nn/encoding.h"
#include "rotary_float32.h"

namespace rf::nn {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kDefaultTokens = 2048;
constexpr int64_t kDefaultBytes = int64_t{256} << 20;  // of what save_model writes
constexpr int64_t kMaxBytes = int64_t{4} << 30;
constexpr int64_t kLongestProbed = int64_t{1} << 24;  // an encoding that reads as many tokens has no limit

// The terms of a file, and the tensors that hold their values.
struct Baked {
  PositionTerms terms;
  std::vector<at::Tensor> values;
  int64_t bytes = 0;

  void add(PositionTerms::Terms& to, const std::string& name, const at::Tensor& tensor, int64_t lo = 0,
           int64_t hi = 0) {
    const at::Tensor value = tensor.detach().to(at::kCPU, at::kFloat).contiguous();
    values.push_back(value);
    bytes += static_cast<int64_t>(value.nbytes());
    to[name] = {.shape = value.sizes().vec(),
                .values = {value.const_data_ptr<float>(), static_cast<size_t>(value.numel())},
                .lo = lo,
                .hi = hi};
  }
};

bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.equal(b);
}
bool same(const ops::DistanceTable& a, const ops::DistanceTable& b) {
  return a.lo == b.lo && a.hi == b.hi && same(a.rows, b.rows);
}
bool same(const Rotation&, const Rotation&) {
  return true;
}

void add_term(Baked& baked, PositionTerms::Terms& to, const std::string& name, const at::Tensor& numbers) {
  baked.add(to, name, numbers);
}
void add_term(Baked& baked, PositionTerms::Terms& to, const std::string& name, const ops::DistanceTable& table) {
  baked.add(to, name, table.rows, table.lo, table.hi);
}
void add_term(Baked&, PositionTerms::Terms&, const std::string&, const Rotation&) {}  // computed when it is needed

// Whether model/computed_encoding.h has the rotations of the model, if any.
bool computes_rotations(const ModelConfig& config) {
  return std::any_of(config.position_encodings.begin(), config.position_encodings.end(), [&](const auto& encoding) {
    const std::optional<ComputedEncoding> computed = computed_encoding(encoding, config);
    return computed && std::holds_alternative<RotarySettings>(*computed);
  });
}

// What no file has of the model's encoding, since it is no term or no constant of a checkpoint: numbers of tokens,
// rotations that are computed here alone, and what is beyond terms; nullptr: there is none.
const char* lacking_term(const Model& model) {
  if (const char* what = model.position_encoding().beyond_terms()) return what;
  if (model.position_encoding().reads_vectors()) return "terms that depend on queries and keys";
  const ops::Terms terms = model.position_terms(1).front();
  const bool has_rotations = computes_rotations(model.config());
  const char* found = nullptr;
#define RF_FIND_ROTATION(name, symbol, ...) \
  if (found == nullptr && terms.name.defined() && !has_rotations) found = #name " (" symbol ")";
#define RF_FIND_SCORES(name, symbol, ...) \
  if (found == nullptr && terms.name.defined()) found = #name " (" symbol ")";
  RF_ATTENTION_TERMS(RF_FIND_ROTATION, RF_NO_TERM, RF_NO_TERM, RF_NO_TERM, RF_FIND_SCORES)
#undef RF_FIND_ROTATION
#undef RF_FIND_SCORES
  return found;
}

Baked bake(const Model& model, int64_t tokens) {
  const std::vector<ops::Terms> layers = model.position_terms(tokens);
  Baked baked;
  baked.terms.layers.resize(layers.size());
  baked.terms.scale = layers[0].scale;
  ops::for_each_term([&](const char* name, const char*, auto member) {
    const auto& first = layers[0].*member;
    if (!first.defined()) return;
    const bool shared =
        std::all_of(layers.begin(), layers.end(), [&](const ops::Terms& terms) { return same(terms.*member, first); });
    if (shared) return add_term(baked, baked.terms.shared, name, first);
    for (size_t i = 0; i < layers.size(); ++i) add_term(baked, baked.terms.layers[i], name, layers[i].*member);
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
    baked.add(baked.terms.shared, "rotary_frequencies",
              is_long ? at::stack({within, float32_frequencies(spec, spec.trained_length + 1)}) : within.unsqueeze(0));
  }
}

bool reads(const Encoding& encoding, int64_t tokens) {
  try {
    encoding.check_length(tokens);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// The longest sequence that the encoding reads.
int64_t longest_of(const Encoding& encoding) {
  if (reads(encoding, kLongestProbed)) return kAllTokens;
  int64_t read = 0, refused = kLongestProbed;
  while (refused - read > 1) {
    const int64_t middle = read + (refused - read) / 2;
    (reads(encoding, middle) ? read : refused) = middle;
  }
  return read;
}

// The longest sequence whose rows fit into so many bytes, at least 1.
int64_t fitting(const Model& model, int64_t longest, int64_t bytes) {
  if (longest < 2) return 1;
  const int64_t one = bake(model, 1).bytes, slope = bake(model, 2).bytes - one;
  if (slope <= 0) return kAllTokens;
  return 1 + std::max<int64_t>(0, bytes - one) / slope;
}

int64_t chosen_tokens(const Model& model, int64_t longest, std::optional<int64_t> asked) {
  if (asked && (*asked < 1 || *asked > longest)) {
    fail<ArgumentError>(
        "position_terms", "the length must be at least 1{}, got {}",
        longest == kAllTokens ? "" : fmt::format(" and at most the {} that the position encoding reads", longest),
        *asked);
  }
  const int64_t last = model.position_encoding().last_new_length(), all = std::min(last, longest);
  const int64_t fits = fitting(model, longest, kDefaultBytes);
  if (last != INT64_MAX && all <= fits) return all;
  if (!asked) return std::min({std::max(model.config().max_position_embeddings, kDefaultTokens), fits, all});
  const int64_t most = fitting(model, longest, kMaxBytes);
  if (*asked > most) {
    fail<ArgumentError>("position_terms", "the rows of terms must fit into {} GiB, which is a length of {}, got {}",
                        kMaxBytes >> 30, most, *asked);
  }
  return std::min(*asked, all);
}

}  // namespace

void remove_position_terms(const std::string& model_dir) {
  std::error_code error;
  fs::remove(fs::path(model_dir) / kPositionTermsFile, error);
  if (error) fail("save_model", "the model directory must be writable, got {} for {}", error.message(), model_dir);
}

std::optional<SavedTerms> save_position_terms(const Model& model, const std::string& model_dir,
                                              std::optional<int64_t> tokens) {
  const ModelConfig& config = model.config();
  const c10::NoGradGuard no_grad;
  if (!needs_position_terms(config)) {
    remove_position_terms(model_dir);
    return std::nullopt;
  }
  const CheckpointFiles weights(model_dir, "save_position_terms");
  const std::string hash = position_terms_hash(config, weights.tensors());
  if (const char* name = lacking_term(model)) {
    write_position_terms(model_dir, {.shared = {}, .layers = {}, .scale = {}, .lacking = name}, hash);
    return std::nullopt;
  }
  const int64_t longest = longest_of(model.position_encoding());
  const int64_t chosen = chosen_tokens(model, longest, tokens);
  Baked baked = bake(model, chosen);
  add_frequencies(baked, config);
  baked.terms.longest = longest;
  baked.terms.tokens = chosen >= model.position_encoding().last_new_length() ? longest : chosen;
  write_position_terms(model_dir, baked.terms, hash);
  return SavedTerms{.tokens = baked.terms.tokens, .longest = longest, .bytes = baked.bytes};
}

std::optional<SavedTerms> save_position_terms(const std::string& model_dir, std::optional<int64_t> tokens) {
  const std::shared_ptr<const Model> model = load_model(model_dir, std::nullopt, at::kFloat);
  if (needs_position_terms(model->config())) {
    const c10::NoGradGuard no_grad;
    if (const char* name = lacking_term(*model)) {
      fail("position_terms", "terms must be rows by distance or by position, got {} from the position encoding", name);
    }
  }
  return save_position_terms(*model, model_dir, tokens);
}

}  // namespace rf::nn
