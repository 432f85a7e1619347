// The model types of all readers (rf/model/model_types.h).
#include "rf/model/model_types.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "names.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/nearest_name.h"

namespace rf {
namespace {

std::vector<std::string_view> all_types() {
  std::vector<std::string_view> all = encoder_types();
  for (const auto& more : {decoder_types(), translation_types()}) all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace

std::string known_model_types() {
  return io::listed(all_types(), "or");
}

void check_model_type(const std::string& model_dir) {
  const std::string path = model_dir + "/config.json";
  if (!io::has_file(path)) return;
  const nlohmann::json object = io::read_json(path);
  if (!object.is_object()) return;
  const auto type = object.find("model_type");
  if (type == object.end() || !type->is_string() || *type == "") return;
  const std::vector<std::string_view> known = all_types();
  if (std::ranges::find(known, type->get_ref<const std::string&>()) != known.end()) return;
  fail(path, "model_type must be one that this program computes, {}, got {}", known_model_types(), shown(*type));
}

}  // namespace rf
