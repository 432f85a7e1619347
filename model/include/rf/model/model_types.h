// Which models open: the values of model_type in config.json, out of the tables of the readers.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace rf {

std::vector<std::string_view> encoder_types();      // config.h
std::vector<std::string_view> decoder_types();      // rotary_decoder.h
std::vector<std::string_view> translation_types();  // translation_config.h

// Which of them a reader opens.
enum class Opens { kEncoders, kEncodersAndDecoders, kTranslation };

// Throws Error for a path that a reader does not open, before anything else of it is read: that is no directory, or
// whose config.json is no object or names another model_type. Returns for an object that says no type.
void check_model_type(const std::string& model_dir, Opens opens);
// Throws Error for config.json (`where`), whose model_type the reader does not open, and says what opens it.
[[noreturn]] void refuse_model_type(std::string_view where, const nlohmann::json& type, Opens opens);

}  // namespace rf
