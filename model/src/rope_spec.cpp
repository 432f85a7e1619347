// Reads a RopeSpec and computes its frequencies (rope_spec.h). One table lists the keys of each rope_type. Defaults and
// attention factors are as in transformers' modeling_rope_utils, but values that it warns about or silently accepts are
// errors here.
#include "rf/model/rope_spec.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numbers>
#include <optional>

#include "rf/io/error.h"
#include "rf/rope_scaling.h"

namespace rf {
namespace {

using io::NumberRange;
using io::StrictObject;
using nlohmann::json;
using Ends = NumberRange::Ends;

constexpr const char* kWhere = "position_encoding";
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kMaxLength = int64_t{1} << 53;  // positions are exact doubles
// Bounds that keep every power of a base within double's exponents.
constexpr NumberRange kThetaRange = {0, 1e100, Ends::kOpenLow};
constexpr NumberRange kFactorRange = {1, 1e9};
constexpr NumberRange kAttentionRange = {0, 1e6, Ends::kOpenLow};
constexpr NumberRange kPositiveRange = {0, kInfinity, Ends::kOpenLow};

struct TypeRow : RopeTypeKeys {
  rf_rope_scaling_type scaling;
};

const std::vector<TypeRow>& type_rows() {
  static const std::vector<TypeRow> table = {
      {{RopeType::kDefault, "default", {}, {}}, RF_ROPE_SCALING_NONE},
      {{RopeType::kLinear, "linear", {"factor"}, {}}, RF_ROPE_SCALING_LINEAR},
      {{RopeType::kNtk, "ntk", {"factor"}, {}}, RF_ROPE_SCALING_NTK},
      {{RopeType::kDynamic, "dynamic", {"factor"}, {}}, RF_ROPE_SCALING_DYNAMIC},
      {{RopeType::kYarn,
        "yarn",
        {"factor", "original_max_position_embeddings"},
        {"attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"}},
       RF_ROPE_SCALING_YARN},
      {{RopeType::kLongrope,
        "longrope",
        {"short_factor", "long_factor", "original_max_position_embeddings"},
        {"attention_factor", "factor"}},
       RF_ROPE_SCALING_LONGROPE},
      {{RopeType::kLlama3,
        "llama3",
        {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"},
        {}},
       RF_ROPE_SCALING_LLAMA3},
      {{RopeType::kProportional, "proportional", {}, {"factor"}}, RF_ROPE_SCALING_PROPORTIONAL},
      {{RopeType::kHope, "hope", {"original_max_position_embeddings"}, {}}, RF_ROPE_SCALING_PROPORTIONAL},
      {{RopeType::kClipped, "clipped", {"clip_low_n"}, {}}, RF_ROPE_SCALING_NONE}};
  return table;
}

const TypeRow& row_of(RopeType type) { return *std::ranges::find(type_rows(), type, &TypeRow::type); }

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

const json* find_or_null(StrictObject& object, const std::string& key) {
  const json* value = object.find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

// Reads one spec. `top_` is the object that contains its dictionary, `given_` the dictionary.
class SpecReader {
 public:
  SpecReader(StrictObject& top, const RopeShape& shape) : top_(top), shape_(shape) {
    const json* parameters = find_or_null(top, "rope_parameters");
    const json* scaling = find_or_null(top, "rope_scaling");
    if (parameters != nullptr && scaling != nullptr) {
      fail(kWhere, "{} and {} must not both be given (they are two versions of one key), got {} and {}",
           top.path_of("rope_parameters"), top.path_of("rope_scaling"), parameters->dump(), scaling->dump());
    }
    path_ = top.path_of(scaling != nullptr ? "rope_scaling" : "rope_parameters");
    if (parameters != nullptr) json_ = *parameters;
    if (scaling != nullptr) json_ = *scaling;
    given_.emplace(json_, kWhere, path_);
    // The value that transformers saves for a key that is not given.
    for (auto item = json_.begin(); item != json_.end();) item = item->is_null() ? json_.erase(item) : std::next(item);
  }

  RopeSpec read() {
    spec_.precision = top_.choice("precision", RopePrecision::kExact,
                                  {{"exact", RopePrecision::kExact}, {"float32", RopePrecision::kFloat32}});
    read_type();
    check_keys();
    spec_.theta = twice_or_once("rope_theta", 10000, kThetaRange);
    read_rotary_dim();
    if (json_.contains("factor")) spec_.factor = given_->number("factor", 1, kFactorRange);
    read_trained_length();
    read_yarn();
    read_longrope();
    read_llama3();
    read_hope();
    if (spec_.type == RopeType::kClipped) spec_.clip_low_n = given_->integer("clip_low_n", 2, 2, spec_.rotary_dim / 2);
    if (shape_.mrope_section == MropeSection::kRequired) read_mrope_section();
    return spec_;
  }

 private:
  void read_type() {
    // "type" is the older spelling; files with both are common.
    const json* old_name = given_->find("type");
    const json* new_name = given_->find("rope_type");
    if (old_name != nullptr && new_name != nullptr && *old_name != *new_name) {
      // Original Qwen2-VL files: {"type": "mrope", "rope_type": "default"}.
      if (!(is_mrope(*old_name) && *new_name == "default")) {
        fail(kWhere, "{0}.type and {0}.rope_type must agree, got {1} and {2}", path_, old_name->dump(),
             new_name->dump());
      }
    }
    const json* value = new_name != nullptr ? new_name : old_name;
    if (value == nullptr || is_mrope(*value)) return;
    for (const RopeTypeKeys& keys : type_rows()) {
      if (*value == keys.name) {
        spec_.type = keys.type;
        return;
      }
    }
    std::vector<std::string> names;
    for (const RopeTypeKeys& keys : type_rows()) names.push_back(keys.name);
    fail(kWhere, "{}.{} must be one of {}, got {}", path_, new_name != nullptr ? "rope_type" : "type",
         fmt::join(names, ", "), value->dump());
  }

  bool is_mrope(const json& type) const { return shape_.mrope_section == MropeSection::kRequired && type == "mrope"; }

  void check_keys() {
    const RopeTypeKeys& keys = row_of(spec_.type);
    std::vector<std::string> known = {"rope_type", "type", "rope_theta", "partial_rotary_factor"};
    known.insert(known.end(), keys.required.begin(), keys.required.end());
    known.insert(known.end(), keys.optional.begin(), keys.optional.end());
    if (shape_.mrope_section == MropeSection::kRequired) known.push_back("mrope_section");
    for (const auto& [key, value] : json_.items()) {
      if (!contains(known, key)) {
        fail(kWhere, "{}.{} must be a key that rope_type {} uses ({}), got {}", path_, key, keys.name,
             fmt::join(known, ", "), value.dump());
      }
    }
    // Phi-3 has this key at the top level, outside the dictionary.
    const bool at_top = contains(keys.required, kOriginal) && find_or_null(top_, kOriginal) != nullptr;
    for (const std::string& key : keys.required) {
      if (!json_.contains(key) && !(at_top && key == kOriginal))
        fail(kWhere, "{}.{} must be given for rope_type {}, got {}", path_, key, keys.name, json_.dump());
    }
  }

  // A number that may be given in the dictionary, at the top level, or in both with the same value.
  double twice_or_once(const std::string& key, double fallback, NumberRange range) {
    const json* outside = find_or_null(top_, key);
    const json* inside = given_->find(key);
    if (outside != nullptr && inside != nullptr && *outside != *inside) {
      fail(kWhere, "{} and {} must agree, got {} and {}", top_.path_of(key), given_->path_of(key), outside->dump(),
           inside->dump());
    }
    if (inside != nullptr) return given_->number(key, fallback, range);
    return outside != nullptr ? top_.number(key, fallback, range) : fallback;
  }

  void read_rotary_dim() {
    const double share = twice_or_once("partial_rotary_factor", 1, {0, 1, Ends::kOpenLow});
    spec_.head_dim = shape_.head_dim;
    const auto truncated = [&](double halves) {
      return static_cast<int64_t>(std::floor(share * static_cast<double>(shape_.head_dim) / halves));
    };
    if (spec_.type == RopeType::kProportional) {
      spec_.rotary_dim = shape_.head_dim;
      spec_.rotating_pairs = truncated(2);
    } else {
      spec_.rotary_dim = truncated(1);
      spec_.rotating_pairs = spec_.rotary_dim / 2;
    }
    if (spec_.rotary_dim < 2 || spec_.rotary_dim % 2 != 0) {
      fail(kWhere, "head_dim * partial_rotary_factor must come to an even number of at least 2, got {} * {} = {}",
           shape_.head_dim, share, spec_.rotary_dim);
    }
    if ((spec_.type == RopeType::kNtk || spec_.type == RopeType::kDynamic) && spec_.rotary_dim < 4)
      fail(kWhere, "rope_type {} must have at least 4 rotated dimensions, got {}", name(spec_.type), spec_.rotary_dim);
  }

  void read_trained_length() {
    spec_.trained_length = shape_.max_position_embeddings;
    if (!contains(row_of(spec_.type).required, kOriginal)) return;
    // Two is the smallest integer with a positive logarithm, for longrope's attention factor.
    const double length = twice_or_once(kOriginal, 0, {2, static_cast<double>(kMaxLength)});
    if (length != std::floor(length)) fail(kWhere, "{} must be an integer, got {}", kOriginal, length);
    spec_.trained_length = static_cast<int64_t>(length);
  }

  void read_yarn() {
    if (spec_.type != RopeType::kYarn) return;
    if (spec_.theta <= 1) fail(kWhere, "rope_theta must be > 1 for rope_type yarn, got {}", spec_.theta);
    spec_.beta_fast = given_->number("beta_fast", 32, kPositiveRange);
    spec_.beta_slow = given_->number("beta_slow", 1, kPositiveRange);
    if (spec_.beta_fast < spec_.beta_slow) {
      fail(kWhere, "{0}.beta_fast must be at least {0}.beta_slow, got {1} and {2}", path_, spec_.beta_fast,
           spec_.beta_slow);
    }
    spec_.truncate = given_->boolean("truncate", true);
    spec_.attention_factor = yarn_attention_factor();
  }

  double yarn_attention_factor() {
    const bool given = json_.contains("attention_factor");
    for (const char* key : {"mscale", "mscale_all_dim"}) {
      if (!json_.contains(key)) continue;
      if (given)
        fail(kWhere, "{0}.{1} must be absent where attention_factor is given, got {2}", path_, key, json_[key].dump());
      if (!json_.contains("mscale") || !json_.contains("mscale_all_dim")) {
        fail(kWhere, "{0}.mscale and {0}.mscale_all_dim must be given together, got {1} {2}", path_, key,
             json_[key].dump());
      }
    }
    if (given) return given_->number("attention_factor", 1, kAttentionRange);
    const auto scale = [&](double weight) {
      return spec_.factor <= 1 ? 1.0 : 0.1 * weight * std::log(spec_.factor) + 1.0;
    };
    if (!json_.contains("mscale")) return scale(1);
    return scale(given_->number("mscale", 1, kAttentionRange)) /
           scale(given_->number("mscale_all_dim", 1, kAttentionRange));
  }

  void read_longrope() {
    if (spec_.type != RopeType::kLongrope) return;
    spec_.short_factor = divisors("short_factor");
    spec_.long_factor = divisors("long_factor");
    if (json_.contains("attention_factor")) {
      // factor would be unused there.
      if (json_.contains("factor"))
        fail(kWhere, "{}.factor must be absent where attention_factor is given, got {}", path_, json_["factor"].dump());
      spec_.attention_factor = given_->number("attention_factor", 1, kAttentionRange);
      return;
    }
    const double trained = static_cast<double>(spec_.trained_length);
    const double stretch =
        json_.contains("factor") ? spec_.factor : static_cast<double>(shape_.max_position_embeddings) / trained;
    spec_.attention_factor = stretch <= 1 ? 1.0 : std::sqrt(1 + std::log(stretch) / std::log(trained));
  }

  std::vector<double> divisors(const std::string& key) {
    const json& value = *given_->find(key);
    const size_t pairs = static_cast<size_t>(spec_.rotary_dim / 2);
    if (!value.is_array() || value.size() != pairs) {
      fail(kWhere, "{}.{} must be a list of {} numbers (half of the {} rotated dimensions), got {}", path_, key, pairs,
           spec_.rotary_dim, value.is_array() ? fmt::format("{} of them", value.size()) : value.dump());
    }
    std::vector<double> numbers;
    for (const json& item : value) {
      const double number = item.is_number() ? item.get<double>() : NAN;
      if (!std::isfinite(number) || number <= 0)
        fail(kWhere, "{}.{} must hold finite numbers > 0, got {}", path_, key, item.dump());
      numbers.push_back(number);
    }
    return numbers;
  }

  void read_llama3() {
    if (spec_.type != RopeType::kLlama3) return;
    spec_.low_freq_factor = given_->number("low_freq_factor", 1, kPositiveRange);
    spec_.high_freq_factor = given_->number("high_freq_factor", 4, kPositiveRange);
    if (spec_.high_freq_factor <= spec_.low_freq_factor) {
      fail(kWhere, "{0}.high_freq_factor must be greater than {0}.low_freq_factor, got {1} and {2}", path_,
           spec_.high_freq_factor, spec_.low_freq_factor);
    }
  }

  // Pairs whose period 2 pi / theta_i is shorter than the training length; theta_i falls with i.
  void read_hope() {
    if (spec_.type != RopeType::kHope) return;
    if (spec_.theta <= 1) fail(kWhere, "rope_theta must be > 1 for rope_type hope, got {}", spec_.theta);
    const double turns = std::log(static_cast<double>(spec_.trained_length) / (2 * std::numbers::pi));  // of pair 0
    const double step = 2 * std::log(spec_.theta) / static_cast<double>(spec_.rotary_dim);
    int64_t pairs = 0;
    while (pairs < spec_.rotary_dim / 2 && static_cast<double>(pairs) * step < turns) ++pairs;
    if (pairs == 0) {
      fail(kWhere, "{} must be at least 7 for rope_type hope, the length of a turn of the fastest pair, got {}",
           kOriginal, spec_.trained_length);
    }
    spec_.rotating_pairs = pairs;
  }

  void read_mrope_section() {
    const json* value = given_->find("mrope_section");
    const int64_t pairs = spec_.rotary_dim / 2;
    int64_t total = 0;
    if (value != nullptr && value->is_array()) {
      for (const json& item : *value) {
        const int64_t count = item.is_number_integer() ? item.get<int64_t>() : -1;
        if (count < 0 || count > pairs) total = -1;
        if (total >= 0) total += count;
        spec_.mrope_section.push_back(count);
      }
    }
    if (spec_.mrope_section.size() != 3 || total != pairs) {
      fail(kWhere, "{}.mrope_section must be 3 counts of pairs that sum to {} (half of the rotated dimensions), got {}",
           path_, pairs, value == nullptr ? "none" : value->dump());
    }
  }

  static constexpr const char* kOriginal = "original_max_position_embeddings";

  StrictObject& top_;
  RopeShape shape_;
  std::string path_;
  json json_ = json::object();
  std::optional<StrictObject> given_;
  RopeSpec spec_;
};

// Multiplies the slowest pairs by numbers that fall from 1 to 0; products in double-double.
void clip_slow_pairs(const RopeSpec& spec, RopeFrequencies& theta) {
  const size_t count = static_cast<size_t>(spec.clip_low_n), first = theta.hi.size() - count;
  for (size_t j = 0; j < count; ++j) {
    const long double turn = std::numbers::pi_v<long double> * static_cast<long double>(j);
    const auto share = static_cast<double>((1 + std::cos(turn / static_cast<long double>(count - 1))) / 2);
    double &hi = theta.hi[first + j], &lo = theta.lo[first + j];
    const double product = hi * share, rest = std::fma(hi, share, -product) + lo * share;
    hi = product + rest;
    lo = rest - (hi - product);
  }
}

}  // namespace

const char* name(RopeType type) { return row_of(type).name; }

const RopeTypeKeys* find_rope_type(std::string_view name) {
  const auto found = std::ranges::find(type_rows(), name, &TypeRow::name);
  return found == type_rows().end() ? nullptr : &*found;
}

RopeSpec read_rope_spec(io::StrictObject& options, const RopeShape& shape) { return SpecReader(options, shape).read(); }

RopeFrequencies frequencies(const RopeSpec& spec, int64_t sequence_length) {
  if (!spec.given.empty()) return {spec.given, std::vector<double>(spec.given.size())};
  const bool is_long = sequence_length > spec.trained_length;
  const rf_rope_scaling scaling = {.struct_size = sizeof(rf_rope_scaling),
                                   .type = row_of(spec.type).scaling,
                                   .base = spec.theta,
                                   .factor = spec.factor,
                                   .trained_length = spec.trained_length,
                                   .length = sequence_length,
                                   .beta_fast = spec.beta_fast,
                                   .beta_slow = spec.beta_slow,
                                   .truncate = spec.truncate ? 1 : 0,
                                   .low_freq_factor = spec.low_freq_factor,
                                   .high_freq_factor = spec.high_freq_factor,
                                   .divisors = (is_long ? spec.long_factor : spec.short_factor).data(),
                                   .rotating_pairs = spec.rotating_pairs};
  const size_t pairs = static_cast<size_t>(spec.rotary_dim / 2);
  RopeFrequencies theta{std::vector<double>(pairs), std::vector<double>(pairs)};
  if (rf_rope_scaled_frequencies(&scaling, spec.rotary_dim, theta.hi.data(), theta.lo.data()) != RF_OK)
    fail(kWhere, "frequencies must be computable, got {}", rf_last_error());
  if (spec.type == RopeType::kClipped) clip_slow_pairs(spec, theta);
  return theta;
}

}  // namespace rf
