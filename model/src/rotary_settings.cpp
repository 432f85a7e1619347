// The keys of rotary encodings (rotary_rows.h).
#include <limits>

#include "rf/io/error.h"
#include "rf/model/rotary_rows.h"

namespace rf {

namespace {

constexpr const char* kSettingsWhere = "position_encoding";

RotaryLayout read_layout(io::StrictObject& options, RotaryLayout fallback) {
  return options.choice("layout", fallback, {{"pairs", RotaryLayout::kPairs}, {"halves", RotaryLayout::kHalves}});
}

void read_rope(io::StrictObject& options, RotarySettings& settings) {
  settings.layout = read_layout(options, RotaryLayout::kPairs);
  settings.rotates_values = options.boolean("rotary_value", false);
  settings.trained = options.boolean("trainable", false);
  if (settings.trained && settings.spec.changes_with_length()) {
    fail(kSettingsWhere, "trainable must be false where frequencies depend on the length, got true with rope_type {}",
         name(settings.spec.type));
  }
}

void read_axial(io::StrictObject& options, RotarySettings& settings) {
  if (settings.spec.changes_with_length()) {
    fail(kSettingsWhere, "rope_type must not depend on the length of a sequence on a grid, got {}", name(settings.spec.type));
  }
  if (options.find("grid_width") == nullptr) {
    fail(kSettingsWhere, "{} must be given, got none", options.path_of("grid_width"));
  }
  settings.grid_width = options.integer("grid_width", 1, 1, int64_t{1} << 31);
  settings.layout = read_layout(options, RotaryLayout::kPairs);
}

void read_xpos(io::StrictObject& options, RotarySettings& settings) {
  settings.scale_base =
      options.number("scale_base", 512, {1, std::numeric_limits<double>::infinity(), io::NumberRange::Ends::kClosed});
  settings.layout = read_layout(options, RotaryLayout::kPairs);
}

}  // namespace

const char* name(RotaryLayout layout) {
  return layout == RotaryLayout::kPairs ? "pairs" : "halves";
}

RotarySettings read_rotary(RotaryForm form, io::StrictObject& options, int64_t head_dim,
                           int64_t max_position_embeddings) {
  const bool axial = form == RotaryForm::kAxial;
  if (axial && head_dim % 4 != 0) {
    fail(kSettingsWhere, "head_dim must be a multiple of 4, as each axis rotates pairs of its half, got {}", head_dim);
  }
  RotarySettings settings;
  settings.form = form;
  settings.spec = read_rope_spec(
      options, {.head_dim = axial ? head_dim / 2 : head_dim,
                .max_position_embeddings = max_position_embeddings,
                .mrope_section = form == RotaryForm::kMrope ? MropeSection::kRequired : MropeSection::kUnknown});
  switch (form) {
    case RotaryForm::kRope:
      read_rope(options, settings);
      break;
    case RotaryForm::kAxial:
      read_axial(options, settings);
      break;
    case RotaryForm::kMrope:
      settings.layout = read_layout(options, RotaryLayout::kHalves);
      break;
    case RotaryForm::kXpos:
      read_xpos(options, settings);
      break;
  }
  return settings;
}

}  // namespace rf
