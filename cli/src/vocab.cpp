// roformer vocab: trains a WordPiece vocabulary or byte-level BPE on documents, or writes the tokenizer of bytes, which
// does not need documents.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"
#include "read_options.h"
#include "rf/data/read_progress.h"
#include "rf/data/reader.h"
#include "rf/io/error.h"
#include "rf/text/tokenizer.h"
#include "rf/text/vocabulary_trainer.h"

namespace rf::cli {

namespace {

struct VocabOptions {
  data::ReadOptions input;
  bool bytes = false, byte_pairs = false;
  std::string output;
  text::VocabularyTrainerOptions trainer;
};

// With such a file the directory becomes a tokenizer: tokenizer_config.json is written next to it.
bool is_of_model_directory(const std::string& output) {
  return std::filesystem::path(output).filename() == "vocab.txt";
}

// The files that save() writes.
std::vector<std::string> outputs_of(const std::string& output) {
  std::vector<std::string> outputs = {output};
  if (is_of_model_directory(output)) {
    const std::filesystem::path directory = std::filesystem::path(output).parent_path();
    for (const std::string_view name : text::kTokenizerFiles) outputs.push_back((directory / name).string());
  }
  return outputs;
}

void save(const text::Vocabulary& vocabulary, const VocabOptions& options) {
  const std::filesystem::path output(options.output);
  const std::filesystem::path directory = output.has_parent_path() ? output.parent_path() : ".";
  if (is_of_model_directory(options.output)) {
    text::Tokenizer(vocabulary, {.letter_case = options.trainer.letter_case}).save(directory);
  } else {
    vocabulary.save(output);
  }
}

int write_bytes(const VocabOptions& options) {
  std::filesystem::create_directories(options.output);
  const text::Tokenizer tokenizer = text::byte_tokenizer();
  tokenizer.save(options.output);
  emit({{"output", options.output}, {"size", tokenizer.vocabulary().size()}, {"hash", tokenizer.vocabulary().hash()}});
  return kOk;
}

// Gives the documents to the trainer and returns the trained result.
template <typename Trainer>
auto trained(Trainer& trainer, data::DocumentReader& reader, int64_t size) {
  data::ReadProgress reading(progress(), "counting words", reader.total_bytes());
  reader.read([&](const data::DocumentPart& piece) {
    trainer.add(piece.text);
    reading.update(reader.counts().bytes);
  });
  const io::TimeEstimate merging(static_cast<double>(size));
  auto result = trainer.train([&](int64_t tokens) {
    progress().update(
        fmt::format("merging: {} of {} tokens{}", tokens, size, merging.left(static_cast<double>(tokens))));
  });
  progress().finish();
  return result;
}

int run_byte_pairs(const VocabOptions& options) {
  data::ReadOptions input = options.input;
  for (const std::string_view name : text::kTokenizerFiles) {
    input.outputs.push_back((std::filesystem::path(options.output) / name).string());
  }
  data::DocumentReader reader(input);
  say_left_out(reader.left_out());
  text::BytePairTrainer trainer({.size = options.trainer.size, .min_frequency = options.trainer.min_frequency});
  const text::Tokenizer tokenizer = trained(trainer, reader, options.trainer.size);
  std::filesystem::create_directories(options.output);
  tokenizer.save(options.output);
  emit({{"output", options.output},
        {"size", tokenizer.vocabulary().size()},
        {"files", reader.files().size()},
        {"hash", tokenizer.vocabulary().hash()}});
  return kOk;
}

int run_vocab(const VocabOptions& options) {
  if (options.trainer.letter_case == text::Case::kKeep && !is_of_model_directory(options.output)) {
    fail("vocab",
         "with --cased the output must be named vocab.txt, so that tokenizer_config.json can record the case, got {}",
         options.output);
  }
  text::VocabularyTrainer trainer(options.trainer);
  data::ReadOptions input = options.input;
  input.outputs = outputs_of(options.output);
  // vocab.txt is the name of a vocabulary, that of an earlier run.
  if (!is_of_model_directory(options.output)) input.replaced = options.output;
  data::DocumentReader reader(input);
  say_left_out(reader.left_out());
  const text::Vocabulary vocabulary = trained(trainer, reader, options.trainer.size);
  save(vocabulary, options);
  emit({{"output", options.output},
        {"size", vocabulary.size()},
        {"files", reader.files().size()},
        {"skipped_records", reader.counts().skipped_records},
        {"hash", vocabulary.hash()}});
  return kOk;
}

std::function<int()> configure_vocab(CLI::App& app, const Common&) {
  auto options = std::make_shared<VocabOptions>();
  const auto common = static_cast<std::ptrdiff_t>(app.get_options().size());
  add_read_options(app, options->input);
  add_default(app, "--size", options->trainer.size, "Tokens in total, including the five special ones");
  add_default(app, "--min-frequency", options->trainer.min_frequency, "Pairs that occur less often are not merged");
  CLI::Option* const alphabet =
      add_default(app, "--max-alphabet", options->trainer.max_alphabet, "Characters kept, the most frequent first");
  CLI::Option* const cased =
      add_switch(app, "--cased", options->trainer.letter_case, text::Case::kKeep, "Keep case and accents");
  app.add_flag("--byte-pairs", options->byte_pairs,
               "Train byte-level BPE, which writes any text and gives it back exactly, instead of WordPiece")
      ->excludes(alphabet)
      ->excludes(cased);
  const std::vector<CLI::Option*> so_far = app.get_options();
  app.add_option("--output", options->output, "vocab.txt to write; with --bytes and --byte-pairs a directory")
      ->required();

  CLI::Option_group* const source = app.add_option_group("source");
  CLI::Option* const bytes = source->add_flag(
      "--bytes", options->bytes, "No text: ids 0 to 255 are the bytes, and the five special tokens follow");
  std::for_each(so_far.begin() + common, so_far.end(), [&](CLI::Option* of_text) { bytes->excludes(of_text); });
  source->add_option(app.get_option("--input")->required(false));
  source->require_option(1);
  return [options] {
    if (options->bytes) return write_bytes(*options);
    return options->byte_pairs ? run_byte_pairs(*options) : run_vocab(*options);
  };
}

}  // namespace

Command vocab_command() {
  return {"vocab", "Train a vocabulary of WordPiece or byte pairs, or make the tokenizer of bytes",
          "roformer vocab --input corpus/ --size 8000 --output v/vocab.txt", Command::Seed::kNotUsed, configure_vocab};
}

}  // namespace rf::cli
