// roformer add-words: adds words to a character-level model, by WoBERT's rule (spec R-TOK-06).
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "read_options.h"
#include "rf/data/read_progress.h"
#include "rf/data/reader.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/text/tokenizer.h"
#include "rf/text/word_vocabulary.h"
#include "rf/train/model_files.h"
#include "training_command.h"

namespace rf::cli {

namespace {

namespace fs = std::filesystem;

struct AddWordsOptions {
  data::ReadOptions input;
  std::string model_dir, output_dir, kind = "roformer";
  text::LoadOptions load;
  int64_t words = 20000, min_frequency = 2;
};

void check_output(const std::string& directory) {
  const bool is_there = fs::exists(fs::symlink_status(directory));
  if (is_there && !(fs::is_directory(directory) && fs::is_empty(directory))) {
    fail("add-words", "the output must be an empty or a new directory, got {}", directory);
  }
}

text::WordVocabulary count_words(const AddWordsOptions& options, const text::Tokenizer& base,
                                 const std::shared_ptr<const text::Dictionary>& dictionary,
                                 data::DocumentReader& reader) {
  text::WordVocabularyBuilder builder(base, dictionary);
  data::ReadProgress reading(progress(), "counting words", reader.total_bytes());
  reader.read([&](const data::DocumentPart& piece) {
    builder.add(piece.text);
    reading.update(reader.counts().bytes);
  });
  progress().finish();
  return builder.build(options.words, options.min_frequency);
}

int run_add_words(const AddWordsOptions& options) {
  check_output(options.output_dir);
  check_outputs({options.output_dir}, {}, options.model_dir);
  check_dictionaries(options.load, options.output_dir);
  const text::Pipeline pipeline = text::pipeline_of_name(options.kind);
  if (!pipeline.segments_words()) {
    fail("add-words", "kind must be {}, which segment words, got {}", text::segmenting_pipelines("or"), options.kind);
  }
  const text::Tokenizer base = text::Tokenizer::load(options.model_dir, {.pipeline = text::Pipeline::kBert});
  const auto dictionary = text::load_dictionary(options.model_dir, options.load);
  data::ReadOptions input = options.input;
  input.outputs = {options.output_dir};
  data::DocumentReader reader(input);
  const text::WordVocabulary made = count_words(options, base, dictionary, reader);

  text::TokenizerOptions made_options = base.options();
  made_options.pipeline = pipeline;
  made_options.dictionary = dictionary;
  const text::Tokenizer tokenizer(
      {.vocabulary = made.vocabulary, .options = made_options, .added = made.added, .merges = {}});

  fs::create_directories(options.output_dir);
  const bool has_weights = io::has_file(options.model_dir + "/config.json");
  if (has_weights) train::change_vocabulary(options.model_dir, made.sources, options.output_dir);
  tokenizer.save(options.output_dir);
  emit({{"output", options.output_dir},
        {"size", made.vocabulary.size()},
        {"new_words",
         std::count_if(made.sources.begin(), made.sources.end(), [](const auto& s) { return s.size() > 1; })},
        {"files", reader.files().size()},
        {"skipped_records", reader.counts().skipped_records},
        {"weights", has_weights},
        {"hash", made.vocabulary.hash()}});
  return kOk;
}

std::function<int()> configure_add_words(CLI::App& app, const Common&) {
  auto options = std::make_shared<AddWordsOptions>();
  add_read_options(app, options->input);
  app.add_option("--model", options->model_dir,
                 "Directory with the tokenizer and, if it has them, config.json and weights")
      ->required();
  app.add_option("--output", options->output_dir, "Model directory to write")->required();
  add_default(app, "--words", options->words, "Largest number of new words; the most frequent are taken");
  add_default(app, "--min-frequency", options->min_frequency, "Words that occur less often are left out");
  add_default(app, "--kind", options->kind, "Tokenizer of the result: " + text::segmenting_pipelines("or"));
  add_dictionary(app, options->load);
  app.description(
      app.get_description() +
      "\nWoBERT's rule: the segmenter's most frequent words of Han characters become tokens; the embedding of "
      "each is the mean\nof its characters' embeddings, and pieces \"##x\" of one Han character are removed");
  return [options] { return run_add_words(*options); };
}

}  // namespace

}  // namespace rf::cli

RF_TRAINING_COMMAND(add_words, rf::cli::configure_add_words)
