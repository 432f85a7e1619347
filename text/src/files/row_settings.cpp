// The settings that transformers reads for rows (rf/text/batch.h): keys of tokenizer_config.json and, for a missing
// side, the sections of tokenizer.json, which contain the last settings of a tokenizer that was used before it was
// saved.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/printable.h"
#include "rf/text/batch.h"

namespace rf::text {

namespace {

using nlohmann::json;

// Absent if the file does not state it.
std::optional<Side> side_of(const json& config, const char* key, const std::string& path) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return std::nullopt;
  const std::string side = found->is_string() ? found->get<std::string>() : "";
  if (side == "right") return Side::kRight;
  if (side == "left") return Side::kLeft;
  fail("tokenizer_config", "{}: \"{}\" must be right or left, got {}", path, key, io::printable(found->dump()));
}

// The "direction" of a section of tokenizer.json, "Right" or "Left".
Side direction_of(const json& file, const char* section, const std::string& path) {
  const json* const found = file.is_object() && file.contains(section) ? &file[section] : nullptr;
  if (found == nullptr || !found->is_object() || !found->contains("direction")) return Side::kRight;
  const json& direction = (*found)["direction"];
  if (direction == "Right") return Side::kRight;
  if (direction == "Left") return Side::kLeft;
  fail("tokenizer_json", "{}: \"{}.direction\" must be Right or Left, got {}", path, section,
       io::printable(direction.dump()));
}

}  // namespace

RowSettings read_row_settings(const std::string& model_dir) {
  const std::string path = (std::filesystem::path(model_dir) / "tokenizer_config.json").string();
  RowSettings settings;
  std::optional<Side> truncation_side, padding_side;
  if (io::has_file(path)) {
    const json config = io::read_json(path);
    if (!config.is_object()) return {};  // Tokenizer::load refuses it
    const auto limit = config.find("model_max_length");
    // 1e30 stands for no limit.
    if (limit != config.end() && limit->is_number_integer() && *limit >= 1 && *limit <= INT64_MAX) {
      settings.max_length = limit->get<int64_t>();
    }
    truncation_side = side_of(config, "truncation_side", path);
    padding_side = side_of(config, "padding_side", path);
  }
  if (!truncation_side || !padding_side) {
    const std::string fast = (std::filesystem::path(model_dir) / "tokenizer.json").string();
    const json file = io::has_file(fast) ? io::read_json(fast) : json();
    if (!truncation_side) truncation_side = direction_of(file, "truncation", fast);
    if (!padding_side) padding_side = direction_of(file, "padding", fast);
  }
  settings.truncation_side = *truncation_side;
  settings.padding_side = *padding_side;
  return settings;
}

}  // namespace rf::text
