// The keys of tokenizer_config.json that transformers reads when it makes rows (rf/text/batch.h).
#include <filesystem>
#include <nlohmann/json.hpp>

#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/printable.h"
#include "rf/text/batch.h"

namespace rf::text {

namespace {

Side side_of(const nlohmann::json& config, const char* key, const std::string& path) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return Side::kRight;
  const std::string side = found->is_string() ? found->get<std::string>() : "";
  if (side == "right") return Side::kRight;
  if (side == "left") return Side::kLeft;
  fail("tokenizer_config", "{}: \"{}\" must be right or left, got {}", path, key, io::printable(found->dump()));
}

}  // namespace

RowSettings read_row_settings(const std::string& model_dir) {
  const std::string path = (std::filesystem::path(model_dir) / "tokenizer_config.json").string();
  if (!std::filesystem::exists(path)) return {};
  const nlohmann::json config = io::read_json(path);
  if (!config.is_object()) return {};  // Tokenizer::load refuses it
  RowSettings settings;
  const auto limit = config.find("model_max_length");
  // 1e30 stands for none.
  if (limit != config.end() && limit->is_number_integer() && *limit >= 1 && *limit <= INT64_MAX) {
    settings.max_length = limit->get<int64_t>();
  }
  settings.truncation_side = side_of(config, "truncation_side", path);
  settings.padding_side = side_of(config, "padding_side", path);
  return settings;
}

}  // namespace rf::text
