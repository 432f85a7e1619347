// The functions that targets.cpp lists, and code shared by the targets.
#pragma once

#include <cstdlib>
#include <string_view>

namespace rf::fuzz {

// config.json: a configuration that was read must be written and read again to the same value.
void config_json(std::string_view bytes);
// model.safetensors: all listed data can be read.
void safetensors(std::string_view bytes);
// Sections: config.json, position_terms.safetensors, model.safetensors. A model that opens computes.
void model_directory(std::string_view bytes);
// Sections: the files of a tokenizer, and a text that it encodes and decodes.
void tokenizer_files(std::string_view bytes);
// A byte for the format, one for options, and the file.
void input_files(std::string_view bytes);
// A GGUF file, or the sections config.json and model.safetensors. A report must contain the frequencies that it states.
void doctor(std::string_view bytes);
// A GGUF file. A model that opens computes, and a tokenizer that opens cuts a text.
void gguf_model(std::string_view bytes);

// Ends the process if a promise is broken.
inline void check(bool holds) {
  if (!holds) std::abort();
}

// Removes and returns the bytes up to the mark between sections, and removes the mark; without a mark, all bytes.
inline std::string_view take_section(std::string_view& bytes) {
  constexpr std::string_view kMark = "\n=====\n";
  const size_t end = bytes.find(kMark);
  const std::string_view section = bytes.substr(0, end);
  bytes = end == std::string_view::npos ? std::string_view() : bytes.substr(end + kMark.size());
  return section;
}

}  // namespace rf::fuzz
