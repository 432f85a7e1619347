// Which models open: the values of model_type in config.json, out of the tables of the readers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rf {

std::vector<std::string_view> encoder_types();      // config.h
std::vector<std::string_view> decoder_types();      // rotary_decoder.h
std::vector<std::string_view> translation_types();  // translation_config.h
// All of them, for messages: "roformer, bert, ... or rf_translation".
std::string known_model_types();

// Throws Error for a directory whose config.json names another model_type, before anything else of it is read. Returns
// for a directory that says no type, and for what is no directory.
void check_model_type(const std::string& model_dir);

}  // namespace rf
