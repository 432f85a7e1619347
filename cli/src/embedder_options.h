// Options of commands that compute vectors of texts.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "command.h"
#include "rf/engine/embedder.h"

namespace rf::cli {

struct EmbedderArguments {
  std::string model_dir;
  engine::EmbedderOptions options;
};

// `arguments` must outlive the application.
void add_embedder_options(CLI::App& app, EmbedderArguments& arguments);
engine::Embedder open_embedder(const EmbedderArguments& arguments, const Common& common);
std::string name_of(engine::Pooling pooling);
std::string name_of(engine::VectorKind vectors);
std::string name_of(engine::TextRole role);
// Messages about texts that reached the token limit, and about texts with ill-formed UTF-8.
void say_about_texts(int64_t full_texts, int64_t max_length, int64_t replaced_bytes);

}  // namespace rf::cli
