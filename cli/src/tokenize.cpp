// roformer tokenize: lines of stdin to token ids, [CLS] and [SEP] included.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <cstring>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"
#include "rf/io/error.h"
#include "rf/text/tokenizer.h"

namespace rf::cli {

namespace {

struct Options {
  std::string model_dir, vocab_path, kind;
};

text::Tokenizer open(const Options& options) {
  if (!options.kind.empty() && options.kind != "bert") {
    fail("tokenize", "kind must be bert, the only tokenizer of this version, got {}", options.kind);
  }
  if (!options.model_dir.empty()) return text::Tokenizer::load(options.model_dir);
  return {text::Vocabulary::load(options.vocab_path), {}};
}

// Written directly: as a JSON value in memory, a line would take 600 bytes a token.
std::string to_json(const text::Vocabulary& vocabulary, const text::Encoding& encoding) {
  std::string json = fmt::format("{{\"ids\":[{}],\"offsets\":[", fmt::join(encoding.ids, ","));
  for (size_t i = 0; i < encoding.size(); ++i) {
    fmt::format_to(std::back_inserter(json), "{}[{},{}]", i > 0 ? "," : "", encoding.char_begin[i],
                   encoding.char_end[i]);
  }
  json += "],\"tokens\":[";
  for (size_t i = 0; i < encoding.size(); ++i) {
    if (i > 0) json += ',';
    json += nlohmann::json(vocabulary.token(encoding.ids[i])).dump();
  }
  return json + "]}";
}

int run(const Options& options) {
  const text::Tokenizer tokenizer = open(options);
  std::ios::sync_with_stdio(false);  // whole blocks, and errors of reading
  std::string line;
  while (std::getline(std::cin, line)) {
    emit_line(to_json(tokenizer.vocabulary(), tokenizer.encode_with_specials(line)));
  }
  if (std::cin.bad()) fail("tokenize", "standard input must be readable, got: {}", std::strerror(errno));
  return kOk;
}

}  // namespace

std::function<int()> configure_tokenize(CLI::App& app, const Common&) {
  auto options = std::make_shared<Options>();
  CLI::Option_group* source = app.add_option_group("vocabulary");
  source->add_option("--model", options->model_dir, "Model directory: vocab.txt and tokenizer_config.json");
  source->add_option("--vocab", options->vocab_path, "vocab.txt of a lower-case vocabulary");
  source->require_option(1);
  app.add_option("--kind", options->kind, "Tokenizer: bert (default)");
  app.description(app.get_description() +
                  "\nids and tokens include [CLS] and [SEP]; offsets are code points of the line, half-open");
  return [options] { return run(*options); };
}

}  // namespace rf::cli
