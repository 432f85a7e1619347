// roformer vocab: text files to a WordPiece vocabulary.
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"
#include "rf/data/reader.h"
#include "rf/io/error.h"
#include "rf/text/vocabulary_trainer.h"
#include "rf/text/tokenizer.h"

namespace rf::cli {

namespace {

struct Options {
  std::vector<std::string> inputs;
  std::string output;
  text::VocabularyTrainerOptions trainer;
};

// A file named vocab.txt makes its directory one that tokenizes: tokenizer_config.json goes beside it.
void save(const text::Vocabulary& vocabulary, const Options& options) {
  const std::filesystem::path output(options.output);
  const std::filesystem::path directory = output.has_parent_path() ? output.parent_path() : ".";
  std::filesystem::create_directories(directory);
  if (output.filename() == "vocab.txt") {
    text::Tokenizer(vocabulary, {.letter_case = options.trainer.letter_case}).save(directory);
  } else {
    vocabulary.save(output);
  }
}

int run(const Options& options) {
  if (options.trainer.letter_case == text::Case::kKeep && !options.output.ends_with("vocab.txt")) {
    fail("vocab",
         "with --cased the output must be named vocab.txt, for tokenizer_config.json beside it to say so, got {}",
         options.output);
  }
  text::VocabularyTrainer trainer(options.trainer);
  io::Progress progress = terminal_progress();
  const std::vector<std::string> files = data::list_text_files(options.inputs);
  for (size_t i = 0; i < files.size(); ++i) {
    progress.update(fmt::format("counting words: file {} of {}", i + 1, files.size()));
    data::read_documents(files[i], data::DocumentRule::kFile, [&](std::string_view text) { trainer.add(text); });
  }
  progress.update("merging");
  const text::Vocabulary vocabulary = trainer.train();
  progress.finish();
  save(vocabulary, options);
  emit({{"output", options.output}, {"size", vocabulary.size()}, {"files", files.size()}, {"hash", vocabulary.hash()}});
  return kOk;
}

}  // namespace

std::function<int()> configure_vocab(CLI::App& app, const Common&) {
  auto options = std::make_shared<Options>();
  app.add_option("--input", options->inputs, "Text files, or directories of *.txt")->required();
  app.add_option("--output", options->output, "vocab.txt to write")->required();
  app.add_option("--size", options->trainer.size, "Tokens in all, the five special ones included")
      ->capture_default_str();
  app.add_option("--min-frequency", options->trainer.min_frequency, "Pairs seen less often are not merged")
      ->capture_default_str();
  app.add_option("--max-alphabet", options->trainer.max_alphabet, "Characters kept, the most frequent first")
      ->capture_default_str();
  app.add_flag_callback(
      "--cased", [options] { options->trainer.letter_case = text::Case::kKeep; }, "Keep case and accents");
  return [options] { return run(*options); };
}

}  // namespace rf::cli
