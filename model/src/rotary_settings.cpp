// The keys of rotary encodings (rotary_rows.h).
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "rf/io/error.h"
#include "rf/model/rotary_rows.h"

namespace rf {

namespace {

constexpr const char* kSettingsWhere = "position_encoding";

RotaryLayout read_layout(io::StrictObject& options, RotaryLayout fallback) {
  return options.choice("layout", fallback, {{"pairs", RotaryLayout::kPairs}, {"halves", RotaryLayout::kHalves}});
}

// Its logarithm is a divisor.
void check_log_n_length(const std::string& key, int64_t length) {
  if (length < 2) fail(kSettingsWhere, "{} must be at least 2 for log n, got {}", key, length);
}

TrainedFrequencies read_trainable(io::StrictObject& options) {
  const nlohmann::json* given = options.find("trainable");
  if (given == nullptr || *given == false) return TrainedFrequencies::kNone;
  if (*given == true) return TrainedFrequencies::kRaw;
  if (*given == "log") return TrainedFrequencies::kLog;
  fail(kSettingsWhere, "{} must be true, false or \"log\", got {}", options.path_of("trainable"), given->dump());
}

// [R/2] numbers that replace the frequencies of the rope_type.
void read_given_frequencies(io::StrictObject& options, RopeSpec& spec) {
  const nlohmann::json* const given = options.find("frequencies");
  if (given == nullptr || given->is_null()) return;
  if (spec.type != RopeType::kDefault || spec.precision != RopePrecision::kExact) {
    fail(kSettingsWhere, "{} must be absent where rope_type is not default or precision is not exact, got {}",
         options.path_of("frequencies"), given->dump());
  }
  const auto is_frequency = [](const nlohmann::json& each) { return each.is_number() && each >= 0 && each <= 1e9; };
  const bool fits = given->is_array() && std::ssize(*given) == spec.rotary_dim / 2;
  if (!fits || !std::ranges::all_of(*given, is_frequency)) {
    fail(kSettingsWhere, "{} must be {} numbers of at least 0, half of the rotated dimensions, got {}",
         options.path_of("frequencies"), spec.rotary_dim / 2, given->dump());
  }
  spec.given = given->get<std::vector<double>>();
}

void read_rope(io::StrictObject& options, RotarySettings& settings) {
  read_given_frequencies(options, settings.spec);
  settings.layout = read_layout(options, RotaryLayout::kPairs);
  settings.rotates_values = options.boolean("rotary_value", false);
  settings.trained = read_trainable(options);
  const bool trained = settings.trained != TrainedFrequencies::kNone;
  if (trained && settings.spec.changes_with_length()) {
    fail(kSettingsWhere, "trainable must be false where frequencies depend on the length, got {} with rope_type {}",
         settings.trained == TrainedFrequencies::kLog ? "\"log\"" : "true", name(settings.spec.type));
  }
  settings.log_n = options.choice("log_n", LogN::kNone,
                                  {{"none", LogN::kNone}, {"position", LogN::kPosition}, {"length", LogN::kLength}});
  if (settings.log_n == LogN::kNone) return;
  if (trained) fail(kSettingsWhere, "log_n must be none where frequencies are trained, got another with trainable");
  if (settings.spec.rotary_dim != settings.spec.head_dim) {
    fail(kSettingsWhere, "log_n needs all of the {} elements of a head to rotate, as it scales whole scores, got {}",
         settings.spec.head_dim, settings.spec.rotary_dim);
  }
  check_log_n_length(options.path_of("max_position_embeddings"), settings.spec.trained_length);
}

void read_axial(io::StrictObject& options, RotarySettings& settings) {
  if (settings.spec.changes_with_length()) {
    fail(kSettingsWhere, "rope_type must not depend on the length of a sequence on a grid, got {}",
         name(settings.spec.type));
  }
  if (options.find("grid_width") == nullptr)
    fail(kSettingsWhere, "{} must be given, got none", options.path_of("grid_width"));
  settings.grid_width = options.integer("grid_width", 1, 1, int64_t{1} << 31);
  settings.layout = read_layout(options, RotaryLayout::kPairs);
}

void read_xpos(io::StrictObject& options, RotarySettings& settings) {
  settings.scale_base =
      options.number("scale_base", 512, {1, std::numeric_limits<double>::infinity(), io::NumberRange::Ends::kClosed});
  settings.layout = read_layout(options, RotaryLayout::kPairs);
}

// Empty if the key is absent. If `open`, the first size may be -1.
std::vector<int64_t> read_axis_sizes(io::StrictObject& options, const char* key, bool open) {
  constexpr int64_t kMostAxes = 8, kMostSize = int64_t{1} << 31;
  const nlohmann::json* given = options.find(key);
  std::vector<int64_t> sizes;
  if (given == nullptr) return sizes;
  bool fits = given->is_array() && !given->empty() && std::ssize(*given) <= kMostAxes;
  for (size_t i = 0; fits && i < given->size(); ++i) {
    const nlohmann::json& item = (*given)[i];
    const int64_t size = item.is_number_integer() ? item.get<int64_t>() : 0;
    fits = (size >= 1 && size <= kMostSize) || (open && i == 0 && size == -1);
    sizes.push_back(size);
  }
  if (!fits) {
    fail(kSettingsWhere, "{} must be a list of 1 to {} integers from 1 to 2^31{}, got {}", options.path_of(key),
         kMostAxes, open ? ", the first of which may be -1" : "", given->dump());
  }
  return sizes;
}

// Divides the head into equal parts.
std::vector<int64_t> equal_dims(int64_t head_dim, int64_t axes) {
  if (head_dim % (2 * axes) != 0) {
    fail(kSettingsWhere, "head_dim must be a multiple of {}, a pair for each axis, or axes_dims_rope given, got {}",
         2 * axes, head_dim);
  }
  return std::vector<int64_t>(static_cast<size_t>(axes), head_dim / axes);
}

RotarySettings read_axial_nd(io::StrictObject& options, int64_t head_dim) {
  RotarySettings settings;
  settings.form = RotaryForm::kAxialNd;
  settings.layout = read_layout(options, RotaryLayout::kPairs);
  settings.grid_shape = read_axis_sizes(options, "grid_shape", /*open=*/true);
  settings.axes_dims = read_axis_sizes(options, "axes_dims_rope", /*open=*/false);
  if (settings.axes_dims.empty() && settings.grid_shape.empty()) {
    fail(kSettingsWhere, "{} or {} must be given, got none", options.path_of("grid_shape"),
         options.path_of("axes_dims_rope"));
  }
  if (settings.axes_dims.empty()) settings.axes_dims = equal_dims(head_dim, std::ssize(settings.grid_shape));
  const std::vector<int64_t>& dims = settings.axes_dims;
  const int64_t total = std::accumulate(dims.begin(), dims.end(), int64_t{0});
  if (total > head_dim || std::any_of(dims.begin(), dims.end(), [](int64_t x) { return x % 2 != 0; })) {
    fail(kSettingsWhere, "{} must be even numbers that sum to at most the {} elements of a head, got [{}]",
         options.path_of("axes_dims_rope"), head_dim, fmt::join(dims, ", "));
  }
  if (!settings.grid_shape.empty() && settings.grid_shape.size() != dims.size()) {
    fail(kSettingsWhere, "{} and {} must have as many axes, got {} and {}", options.path_of("grid_shape"),
         options.path_of("axes_dims_rope"), settings.grid_shape.size(), dims.size());
  }
  double tokens = 1;
  for (const int64_t size : settings.grid_shape) tokens *= static_cast<double>(std::max<int64_t>(size, 1));
  if (tokens > 0x1p53) {
    fail(kSettingsWhere, "{} must have at most 2^53 places, got [{}]", options.path_of("grid_shape"),
         fmt::join(settings.grid_shape, ", "));
  }
  settings.spec.head_dim = head_dim;
  settings.spec.rotary_dim = total;
  settings.spec.rotating_pairs = total / 2;
  settings.spec.theta = options.number("rope_theta", 10000, {0, 1e100, io::NumberRange::Ends::kOpenLow});
  return settings;
}

RotarySettings read_log_n(io::StrictObject& options, int64_t head_dim, int64_t max_position_embeddings) {
  constexpr const char* kLength = "original_max_position_embeddings";
  if (head_dim % 2 != 0) fail(kSettingsWhere, "head_dim must be even for log-n, got {}", head_dim);
  RotarySettings settings;
  settings.form = RotaryForm::kLogN;
  settings.log_n = options.choice("rule", LogN::kPosition, {{"position", LogN::kPosition}, {"length", LogN::kLength}});
  settings.spec.type = RopeType::kProportional;
  settings.spec.head_dim = settings.spec.rotary_dim = head_dim;
  settings.spec.rotating_pairs = 0;
  settings.spec.trained_length = options.integer(kLength, max_position_embeddings, 1, int64_t{1} << 53);
  check_log_n_length(options.path_of(kLength), settings.spec.trained_length);
  return settings;
}

}  // namespace

const char* parameter_name(TrainedFrequencies trained) {
  switch (trained) {
    case TrainedFrequencies::kRaw: return "freqs";
    case TrainedFrequencies::kLog: return "log_freqs";
    default: return "";
  }
}

const char* name(RotaryLayout layout) { return layout == RotaryLayout::kPairs ? "pairs" : "halves"; }

RotarySettings read_rotary(RotaryForm form, io::StrictObject& options, int64_t head_dim,
                           int64_t max_position_embeddings) {
  if (form == RotaryForm::kAxialNd) return read_axial_nd(options, head_dim);
  if (form == RotaryForm::kLogN) return read_log_n(options, head_dim, max_position_embeddings);
  const bool axial = form == RotaryForm::kAxial;
  if (axial && head_dim % 4 != 0)
    fail(kSettingsWhere, "head_dim must be a multiple of 4, as each axis rotates pairs of its half, got {}", head_dim);
  RotarySettings settings;
  settings.form = form;
  settings.spec = read_rope_spec(
      options, {.head_dim = axial ? head_dim / 2 : head_dim,
                .max_position_embeddings = max_position_embeddings,
                .mrope_section = form == RotaryForm::kMrope ? MropeSection::kRequired : MropeSection::kUnknown});
  switch (form) {
    case RotaryForm::kRope: read_rope(options, settings); break;
    case RotaryForm::kAxial: read_axial(options, settings); break;
    case RotaryForm::kMrope: settings.layout = read_layout(options, RotaryLayout::kHalves); break;
    case RotaryForm::kXpos: read_xpos(options, settings); break;
    case RotaryForm::kAxialNd:
    case RotaryForm::kLogN: break;  // handled above
  }
  return settings;
}

}  // namespace rf
