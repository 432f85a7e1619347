// roformer tokenize: lines of stdin to token ids, [CLS] and [SEP] included.
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"
#include "rf/io/error.h"
#include "rf/text/wordpiece.h"

namespace rf::cli {

namespace {

struct Options {
  std::string model_dir, vocab_path, kind;
};

text::WordpieceTokenizer open(const Options& options) {
  if (!options.kind.empty() && options.kind != "bert") {
    fail("tokenize", "kind must be bert, the only tokenizer of this version, got {}", options.kind);
  }
  if (!options.model_dir.empty()) return text::WordpieceTokenizer::load(options.model_dir);
  return {text::Vocabulary::load(options.vocab_path), {}};
}

int run(const Options& options) {
  const text::WordpieceTokenizer tokenizer = open(options);
  std::string line;
  while (std::getline(std::cin, line)) {
    const text::Encoding encoding = tokenizer.encode_with_specials(line);
    nlohmann::json tokens = nlohmann::json::array(), offsets = nlohmann::json::array();
    for (size_t i = 0; i < encoding.size(); ++i) {
      tokens.push_back(tokenizer.vocabulary().token(encoding.ids[i]));
      offsets.push_back({encoding.char_begin[i], encoding.char_end[i]});
    }
    emit({{"ids", encoding.ids}, {"tokens", tokens}, {"offsets", offsets}});
  }
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
