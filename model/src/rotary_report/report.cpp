// The complete report (rotary_report.h): selects the file to read, derives findings from its rotations, and writes
// JSON.
#include "rf/model/rotary_report.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "parts.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/half.h"

namespace rf {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr double kLargeError = 1e-3;

enum class AngleForm {
  kFloat32,            // float32(position) * float32(frequency), as in transformers
  kBfloat16Positions,  // positions rounded to bfloat16, then exact
  kFloat16Positions,
};

constexpr int64_t kCheckedPositions = 4096, kMinPositions = 16;
constexpr int64_t kCheckedAngles = int64_t{1} << 19;  // limit for all positions together, if heads are large
constexpr double kMaxError = 2;

// As torch casts an integer; infinity beyond the range.
double rounded_to_bfloat16(int64_t position) {
  return static_cast<double>(io::float_of_bf16(io::bf16_of_float(static_cast<float>(position))));
}
double rounded_to_float16(int64_t position) {
  return static_cast<double>(io::float_of_half(io::half_of_float(static_cast<float>(position))));
}

RotarySettings unscaled(const RopeSpec& spec, RopePrecision precision) {
  RotarySettings settings;
  settings.spec = spec;
  settings.spec.attention_factor = 1;
  settings.spec.precision = precision;
  return settings;
}

RotaryRows float32_rows(const RopeSpec& spec) {
  return RotaryRows(unscaled(spec, RopePrecision::kFloat32), [spec](int64_t length) {
    const std::vector<double> exact = frequencies(spec, length).hi;
    return std::vector<float>(exact.begin(), exact.end());
  });
}

struct Rows {
  std::vector<double> cos, sin;
};

Rows rows_at(const RotaryRows& rotary, const std::vector<int64_t>& positions, int64_t length) {
  const std::vector<int64_t> first(positions.size(), 0), end(positions.size(), length);
  Rows rows;
  rows.cos.resize(positions.size() * static_cast<size_t>(rotary.pairs()));
  rows.sin.resize(rows.cos.size());
  const RotaryTokens tokens = {.count = std::ssize(positions),
                               .ids = positions.data(),
                               .first = first.data(),
                               .end = end.data(),
                               .axes = nullptr};
  rotary.fill(RotarySide::kQuery, tokens, rows.cos.data(), rows.sin.data());
  return rows;
}

// The largest error of cos and sin over the last (at most 4096) positions of a sequence of that many tokens, compared
// with exact rows.
AngleError angle_error(const RopeSpec& spec, AngleForm form, int64_t length) {
  const RotaryRows exact(unscaled(spec, RopePrecision::kExact));
  const bool is_float32 = form == AngleForm::kFloat32;
  const RotaryRows other = is_float32 ? float32_rows(spec) : exact;
  const int64_t pairs = exact.pairs();
  const int64_t checked = std::min(length, std::clamp(kCheckedAngles / pairs, kMinPositions, kCheckedPositions));
  AngleError worst{.error = -1};
  constexpr int64_t kChunk = 64;
  for (int64_t begin = length - checked; begin < length; begin += kChunk) {
    std::vector<int64_t> positions, rounded;
    for (int64_t p = begin; p < std::min(begin + kChunk, length); ++p) {
      const double there = is_float32                              ? static_cast<double>(p)
                           : form == AngleForm::kBfloat16Positions ? rounded_to_bfloat16(p)
                                                                   : rounded_to_float16(p);
      if (!std::isfinite(there)) return {.error = kMaxError, .position = p, .pair = 0};
      positions.push_back(p);
      rounded.push_back(static_cast<int64_t>(there));
    }
    const Rows truth = rows_at(exact, positions, length), found = rows_at(other, rounded, length);
    for (size_t i = 0; i < truth.cos.size(); ++i) {
      const double error = std::max(std::abs(truth.cos[i] - found.cos[i]), std::abs(truth.sin[i] - found.sin[i]));
      if (error <= worst.error) continue;
      const auto at = static_cast<int64_t>(i);
      worst = {.error = error, .position = begin + at / pairs, .pair = at % pairs};
    }
  }
  return worst;
}

// "9.5e-03 at position 131000, pair 2".
std::string shown_error(const AngleError& error) {
  return fmt::format("{:.1e} at position {}, pair {}", error.error, error.position, error.pair);
}

json json_of(const std::optional<AngleError>& error) {
  if (!error) return nullptr;
  return {{"error", error->error}, {"position", error->position}, {"pair", error->pair}};
}

json known(int64_t number) { return number == 0 ? json() : json(number); }

// The numbers that a scaling uses, named as in rope_parameters.
json scaling_numbers(const RopeSpec& spec) {
  json numbers = json::object();
  const RopeTypeKeys* const keys = find_rope_type(name(spec.type));
  const auto reads = [&](const char* key) {
    return std::ranges::find(keys->required, key) != keys->required.end() ||
           std::ranges::find(keys->optional, key) != keys->optional.end();
  };
  if (reads("factor") && spec.type != RopeType::kLongrope) numbers["factor"] = spec.factor;
  if (reads("original_max_position_embeddings")) numbers["original_max_position_embeddings"] = spec.trained_length;
  if (spec.type == RopeType::kYarn) {
    numbers["beta_fast"] = spec.beta_fast;
    numbers["beta_slow"] = spec.beta_slow;
    numbers["truncate"] = spec.truncate;
  }
  if (spec.type == RopeType::kClipped) numbers["clip_low_n"] = spec.clip_low_n;
  if (spec.type == RopeType::kLlama3) {
    numbers["low_freq_factor"] = spec.low_freq_factor;
    numbers["high_freq_factor"] = spec.high_freq_factor;
  }
  return numbers;
}

json json_of(const Rotation& rotation) {
  json object = {{"layers", rotation.layers},
                 {"pairing", rotation.layout ? json(name(*rotation.layout)) : json()},
                 {"base", rotation.base},
                 {"scaling", rotation.scaling},
                 {"scaling_parameters", nullptr},
                 {"rotary_size", nullptr},
                 {"rotating_pairs", nullptr},
                 {"attention_factor", nullptr},
                 {"frequencies", nullptr},
                 {"longest_frequencies", nullptr},
                 {"float32_angles", json_of(rotation.float32_angles)},
                 {"bfloat16_positions", json_of(rotation.bfloat16_positions)},
                 {"float16_positions", json_of(rotation.float16_positions)}};
  if (!rotation.spec) return object;
  object["scaling_parameters"] = scaling_numbers(*rotation.spec);
  object["rotary_size"] = rotation.spec->rotary_dim;
  object["rotating_pairs"] = rotation.spec->rotating_pairs;
  object["attention_factor"] = rotation.spec->attention_factor;
  object["frequencies"] = rotation.frequencies;
  if (!rotation.longest_frequencies.empty()) object["longest_frequencies"] = rotation.longest_frequencies;
  return object;
}

}  // namespace

std::vector<fs::path> gguf_files(const fs::path& directory) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (entry.path().extension() == ".gguf") found.push_back(entry.path());
  }
  std::ranges::sort(found);
  // The first part of a model opens the others.
  std::erase_if(found, [all = found](const fs::path& file) {
    constexpr std::string_view kFirst = "00001";
    std::string first = file.string();
    const size_t of = first.rfind("-of-");
    if (of == std::string::npos || of < kFirst.size()) return false;
    first.replace(of - kFirst.size(), kFirst.size(), kFirst);
    return first != file && std::ranges::find(all, fs::path(first)) != all.end();
  });
  return found;
}

const char* name(Severity severity) { return severity == Severity::kProblem ? "problem" : "note"; }

void complete(Rotation& rotation, int64_t length) {
  if (!rotation.spec) return;
  const RopeSpec& spec = *rotation.spec;
  rotation.frequencies = frequencies(spec, std::min<int64_t>(spec.trained_length, std::max<int64_t>(length, 1))).hi;
  if (length == 0) return;
  if (spec.changes_with_length()) {
    rotation.longest_frequencies = frequencies(spec, length).hi;
    if (rotation.longest_frequencies == rotation.frequencies) rotation.longest_frequencies.clear();
  }
  rotation.float32_angles = angle_error(spec, AngleForm::kFloat32, length);
  rotation.bfloat16_positions = angle_error(spec, AngleForm::kBfloat16Positions, length);
  rotation.float16_positions = angle_error(spec, AngleForm::kFloat16Positions, length);
}

void note_angles(const RotaryReport& report, Findings& findings) {
  for (const Rotation& rotation : report.rotations) {
    if (!rotation.spec) continue;
    const std::string where = report.rotations.size() == 1 ? "" : fmt::format(" of {} layers", rotation.layers);
    const bool one_list = rotation.spec->short_factor == rotation.spec->long_factor;
    if (rotation.spec->changes_with_length() && (rotation.spec->type == RopeType::kDynamic || !one_list)) {
      findings.note("changes-with-length",
                    "frequencies{} of scaling {} depend on a length: in transformers that of each call, so that cached "
                    "keys may have others; in vLLM the longest that it serves",
                    where, rotation.scaling);
    }
    if (!rotation.float32_angles) continue;
    if (rotation.float32_angles->error >= kLargeError) {
      findings.note("float32-angles", "float32 angles make cosines and sines{} wrong by up to {}", where,
                    shown_error(*rotation.float32_angles));
    }
    const bool is_bfloat16 = report.dtype == "bfloat16", is_float16 = report.dtype == "float16";
    const AngleError& rounded = is_float16 ? *rotation.float16_positions : *rotation.bfloat16_positions;
    if ((is_bfloat16 || is_float16) && rounded.error >= kLargeError) {
      findings.note("rounded-positions",
                    "positions above {} are rounded in the model's dtype, {}: where an engine casts them, cosines and "
                    "sines{} are wrong by up to {}",
                    is_float16 ? 2048 : 256, report.dtype, where, shown_error(rounded));
    }
  }
}

RotaryReport rotary_report(const std::string& path) {
  constexpr const char* kWhere = "doctor";
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) fail<MissingFileError>(kWhere, "the path must exist, got {}", path);
  if (!fs::is_directory(status)) {
    if (fs::path(path).filename() == "config.json") return report_of_config(fs::path(path).parent_path().string());
    return report_of_gguf(path);
  }
  const std::vector<fs::path> files = gguf_files(path);
  if (io::has_file(fs::path(path) / "config.json")) {
    RotaryReport report = report_of_config(path);
    for (const fs::path& file : files)
      Findings(report.findings).note("other-file", "{} beside config.json was not read", file.filename().string());
    return report;
  }
  if (files.size() != 1) {
    fail<MissingFileError>(kWhere, "a directory must hold config.json or one .gguf file, got {} in {}",
                           files.empty() ? "neither" : fmt::format("{} .gguf files", files.size()), path);
  }
  return report_of_gguf(files[0].string());
}

json to_json(const RotaryReport& report) {
  json object = {{"path", report.path},
                 {"format", report.format},
                 {"model_type", report.model_type.empty() ? json() : json(report.model_type)},
                 {"part", report.part.empty() ? json() : json(report.part)},
                 {"version", known(report.version)},
                 {"dtype", report.dtype.empty() ? json() : json(report.dtype)},
                 {"layers", known(report.layers)},
                 {"heads", known(report.heads)},
                 {"kv_heads", known(report.kv_heads)},
                 {"head_size", known(report.head_size)},
                 {"length", known(report.length)},
                 {"tensors", report.tensors < 0 ? json() : json(report.tensors)},
                 {"rotations", json::array()},
                 {"unrotated_layers", report.unrotated_layers},
                 {"findings", json::array()}};
  for (const Rotation& rotation : report.rotations) object["rotations"].push_back(json_of(rotation));
  for (const Finding& finding : report.findings) {
    object["findings"].push_back(
        {{"severity", name(finding.severity)}, {"rule", finding.rule}, {"text", finding.text}});
  }
  return object;
}

json rotary_model_types() {
  json all = json::array();
  for (const RotaryFamily& family : rotary_families()) {
    std::string size = "the head";
    if (family.size != RotarySize::kWhole) size = fmt::format("{} ({})", family.part_key, family.part);
    if (family.head_key == "qk_rope_head_dim") size = fmt::format("{} ({})", family.head_key, family.head_dim);
    json object = {{"model_type", family.model_type},
                   {"pairing", name(family.layout)},
                   {"base", family.base},
                   {"local_base", family.layers == LayerTypes::kOne ? json() : json(family.local_base)},
                   {"rotates", size},
                   {"scalings", family.reads_scaling}};
    all.push_back(std::move(object));
  }
  return all;
}

}  // namespace rf
