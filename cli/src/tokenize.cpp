// roformer tokenize: lines of standard input to rows of token ids, including special tokens.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "command.h"
#include "read_options.h"
#include "rf/io/error.h"
#include "rf/text/batch.h"
#include "rf/text/tokenizer.h"

namespace rf::cli {

namespace {

using text::Overflow;
using text::Padding;
using text::Row;
using text::Side;
using text::Truncation;

constexpr size_t kBatchLines = 1000;
constexpr size_t kBatchBytes = size_t{1} << 20;

struct TokenizeOptions {
  std::string model_dir, vocab_path, kind;
  text::LoadOptions load;
  bool cased = false, pairs = false;
  text::BatchOptions batch;
  std::optional<Side> truncation_side, padding_side;  // in place of the directory's
};

text::Tokenizer open(const TokenizeOptions& options) {
  text::LoadOptions load = options.load;
  if (!options.kind.empty()) load.pipeline = text::pipeline_of_name(options.kind);
  if (!options.model_dir.empty()) return text::Tokenizer::load(options.model_dir, load);
  text::TokenizerOptions made;
  made.pipeline = load.pipeline.value_or(text::Pipeline::kBert);
  if (!made.pipeline.has_word_pieces()) {
    fail_usage("tokenize", "{} needs --model, a directory with tokenizer.json, got --vocab", options.kind);
  }
  text::check_dictionaries(load, made.pipeline);
  made.letter_case = options.cased ? text::Case::kKeep : text::Case::kLower;
  if (made.pipeline.segments_words()) made.dictionary = text::load_dictionary("", load);
  return {text::Vocabulary::load(options.vocab_path), made};
}

// Writes a row as a line of JSON in parts: the text of a long row would take many times the memory of the tokens, and a
// JSON value 600 bytes per token.
class RowLine {
 public:
  explicit RowLine(const text::Vocabulary& vocabulary) : vocabulary_(vocabulary) {}

  void write(const Row& row, int64_t first_line) {
    append("{{\"line\":{}", first_line + row.sample);
    array("ids", row, [&](size_t i) { append("{}", row.tokens.ids[i]); });
    array("offsets", row, [&](size_t i) { append("[{},{}]", row.tokens.char_begin[i], row.tokens.char_end[i]); });
    array("byte_offsets", row, [&](size_t i) { append("[{},{}]", row.tokens.byte_begin[i], row.tokens.byte_end[i]); });
    array("types", row, [&](size_t i) { append("{}", row.types[i]); });
    array("mask", row, [&](size_t i) { append("{}", row.mask[i]); });
    array("tokens", row, [&](size_t i) { json_ += nlohmann::json(vocabulary_.token(row.tokens.ids[i])).dump(); });
    json_ += '}';
    emit_line(json_);
    json_.clear();
  }

 private:
  static constexpr size_t kBlockBytes = size_t{1} << 20;

  template <typename... Values>
  void append(fmt::format_string<Values...> format, Values&&... values) {
    fmt::format_to(std::back_inserter(json_), format, std::forward<Values>(values)...);
  }
  template <typename Item>
  void array(const char* key, const Row& row, Item item) {
    append(",\"{}\":[", key);
    for (size_t i = 0; i < row.size(); ++i) {
      if (i > 0) json_ += ',';
      item(i);
      if (json_.size() < kBlockBytes) continue;
      emit_part(json_);
      json_.clear();
    }
    json_ += ']';
  }

  const text::Vocabulary& vocabulary_;
  std::string json_;
};

text::TextPair sample_of(const std::string& line, bool pairs, int64_t number) {
  if (!pairs) return {line};
  const size_t tab = line.find('\t');
  if (tab == std::string::npos || line.find('\t', tab + 1) != std::string::npos) {
    fail("tokenize", "with --pairs a line must hold two texts with one tab between them, got line {} with {} tabs",
         number, std::count(line.begin(), line.end(), '\t'));
  }
  const std::string_view whole = line;
  return {whole.substr(0, tab), whole.substr(tab + 1)};
}

class LineTokenizer {
 public:
  explicit LineTokenizer(const TokenizeOptions& options)
      : options_(options),
        tokenizer_(open(options)),
        encoder_(tokenizer_, options.batch),
        line_(tokenizer_.vocabulary()) {}

  int64_t replaced() const { return replaced_; }

  // Collects lines until there are enough for the threads or no more are waiting, so that a typed line is answered at
  // once.
  void run() {
    std::ios::sync_with_stdio(false);  // whole blocks, and errors of reading
    size_t bytes = 0;
    for (std::string line; std::getline(std::cin, line);) {
      bytes += line.size();
      lines_.push_back(std::move(line));
      const bool waits = std::cin.rdbuf()->in_avail() > 0;
      if (lines_.size() < kBatchLines && bytes < kBatchBytes && waits) continue;
      flush();
      bytes = 0;
    }
    if (std::cin.bad()) fail("tokenize", "standard input must be readable, got: {}", std::strerror(errno));
    flush();
  }

 private:
  void flush() {
    std::vector<text::TextPair> samples;
    for (size_t i = 0; i < lines_.size(); ++i) {
      samples.push_back(sample_of(lines_[i], options_.pairs, done_ + static_cast<int64_t>(i) + 1));
    }
    for (const Row& row : encoder_.encode(samples)) {
      line_.write(row, done_ + 1);
      replaced_ += row.tokens.replaced_bytes;
    }
    done_ += static_cast<int64_t>(lines_.size());
    lines_.clear();
  }

  const TokenizeOptions& options_;
  text::Tokenizer tokenizer_;
  text::BatchEncoder encoder_;
  RowLine line_;
  std::vector<std::string> lines_;
  int64_t done_ = 0, replaced_ = 0;
};

int run_tokenize(TokenizeOptions& options, const Common& common) {
  options.batch.threads = common.threads;
  if (options.cased && options.vocab_path.empty()) {
    fail_usage("tokenize", "--cased goes with --vocab, got --model, whose tokenizer_config.json has the letter case");
  }
  if (options.batch.max_length != 0 && options.batch.truncation == Truncation::kNone &&
      options.batch.padding == Padding::kNone) {
    fail_usage("tokenize", "--max-length goes with --truncation or --pad, got neither");
  }
  check_outputs({}, {"-"}, "");
  check_dictionaries(options.load);
  const text::RowSettings settings =
      options.model_dir.empty() ? text::RowSettings() : text::read_row_settings(options.model_dir);
  options.batch.truncation_side = options.truncation_side.value_or(settings.truncation_side);
  options.batch.padding_side = options.padding_side.value_or(settings.padding_side);
  LineTokenizer tokenizer(options);
  tokenizer.run();
  if (tokenizer.replaced() > 0) {
    say(fmt::format("{} ill-formed UTF-8 sequences were read as U+FFFD", tokenizer.replaced()));
  }
  return kOk;
}

void add_row_options(CLI::App& app, TokenizeOptions& options) {
  text::BatchOptions& batch = options.batch;
  app.add_option("--max-length", batch.max_length, "Largest number of tokens in a row, including special tokens");
  CLI::Option* const truncation = add_choice<Truncation>(app, "--truncation", batch.truncation, "",
                                                         "What is truncated: longest-first, only-first, only-second",
                                                         {{"longest-first", Truncation::kLongestFirst},
                                                          {"only-first", Truncation::kOnlyFirst},
                                                          {"only-second", Truncation::kOnlySecond}});
  const std::map<std::string, std::optional<Side>> sides = {{"right", Side::kRight}, {"left", Side::kLeft}};
  add_choice<std::optional<Side>>(app, "--truncation-side", options.truncation_side, "",
                                  "Where tokens are cut off: right or left; default: the directory's, else right",
                                  sides)
      ->needs(truncation);
  CLI::Option* const overflow =
      add_switch(app, "--overflow", batch.overflow, Overflow::kRows, "Tokens that are cut off become further rows");
  app.add_option("--stride", batch.stride, "Tokens that an overflowing row repeats of the one before")->needs(overflow);
  CLI::Option* const pad = add_switch(app, "--pad", batch.padding, Padding::kMaxLength, "Fill rows up to --max-length");
  add_choice<std::optional<Side>>(app, "--padding-side", options.padding_side, "",
                                  "Where padding goes: right or left; default: the directory's, else right", sides)
      ->needs(pad);
  add_switch(app, "--no-special-tokens", batch.add_specials, text::AddSpecials::kNo, "Do not add special tokens");
}

std::vector<std::string> kinds_of_vocabularies() {
  std::vector<std::string> kinds;
  for (const text::Pipeline pipeline : text::all_pipelines()) {
    if (!pipeline.has_word_pieces()) continue;
    kinds.emplace_back(text::name(pipeline));
    if (pipeline == text::Pipeline::kBert) kinds.back() += " (default with --vocab)";
  }
  return kinds;
}

std::function<int()> configure_tokenize(CLI::App& app, const Common& common) {
  auto options = std::make_shared<TokenizeOptions>();
  CLI::Option_group* source = app.add_option_group("vocabulary");
  source->add_option("--model", options->model_dir, "Model directory: tokenizer.json or vocab.txt, and their settings");
  source->add_option("--vocab", options->vocab_path, "vocab.txt");
  source->require_option(1);
  app.add_option(
      "--kind", options->kind,
      fmt::format("{}; with --model it replaces the directory's own", fmt::join(kinds_of_vocabularies(), ", ")));
  app.add_flag("--cased", options->cased, "The vocabulary of --vocab keeps case and accents");
  add_dictionary(app, options->load);
  app.add_flag("--pairs", options->pairs, "Each line has two texts with a tab between them");
  add_row_options(app, *options);
  app.description(app.get_description() +
                  "\nA row has ids, tokens, types and mask; offsets are code points of the line (of its text, with "
                  "--pairs), byte_offsets\nbytes, both half-open");
  return [options, &common] { return run_tokenize(*options, common); };
}

}  // namespace

Command tokenize_command() {
  return {"tokenize", "Token ids, tokens and offsets, one JSON line for each line of stdin",
          "echo 'We the people' | roformer tokenize --model runs/sotu/model", Command::Seed::kNotUsed,
          configure_tokenize};
}

}  // namespace rf::cli
