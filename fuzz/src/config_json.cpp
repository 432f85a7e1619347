// config.json of a model.
#include <nlohmann/json.hpp>

#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/model/config.h"
#include "rf/model/weights.h"
#include "target_functions.h"

namespace rf::fuzz {

void config_json(std::string_view bytes) {
  try {
    const ModelConfig config = parse_config(io::parse_json(bytes, "config.json"));
    check(parse_config(to_json(config)) == config);
    if (config.num_hidden_layers <= 4) weight_specs(config, config.head());
  } catch (const Error&) {
  }
}

}  // namespace rf::fuzz
