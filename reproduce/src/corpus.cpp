// Texts of the trained experiments (corpus.h).
#include "corpus.h"

#include <fmt/format.h>

#include <filesystem>

#include "data_sets.h"
#include "rf/data/prepare.h"
#include "rf/io/files.h"
#include "rf/text/byte_tokenizer.h"
#include "rf/text/vocabulary_trainer.h"
#include "rf/text/word_vocabulary.h"
#include "shared_training.h"

namespace rf::reproduce {

namespace {

namespace fs = std::filesystem;

// The file of a vocabulary, or "bytes"; nullptr: it is trained.
const std::string* named_tokens(const Corpus& corpus) {
  return std::get_if<std::string>(&corpus.tokens);
}

bool is_bytes(const Corpus& corpus) {
  return named_tokens(corpus) && *named_tokens(corpus) == "bytes";
}

data::ReadOptions inputs(const Context& context, const Corpus& corpus) {
  data::ReadOptions options;
  for (const std::string& file : corpus.files) options.inputs.push_back(context.data_dir + "/" + file);
  options.document_rule = data::document_rule(corpus.documents.empty() ? "file" : corpus.documents);
  options.quotes = data::Quotes::kText;
  if (!corpus.field.empty()) options.field = corpus.field;
  return options;
}

text::Vocabulary vocabulary(const Context& context, const Corpus& corpus) {
  if (const std::string* file = named_tokens(corpus)) return text::Vocabulary::load(context.data_dir + "/" + *file);
  text::VocabularyTrainer trainer({.size = std::get<int64_t>(corpus.tokens)});
  data::DocumentReader(inputs(context, corpus)).read([&](const data::DocumentPart& piece) { trainer.add(piece.text); });
  return trainer.train();
}

text::Tokenizer tokenizer(const Context& context, const Corpus& corpus) {
  if (is_bytes(corpus)) return text::byte_tokenizer();
  const text::Vocabulary made = vocabulary(context, corpus);
  const text::Pipeline pipeline = text::pipeline_of_name(corpus.pipeline.empty() ? "bert" : corpus.pipeline);
  if (pipeline == text::Pipeline::kBert) return {made, {}};
  const auto dictionary = text::Dictionary::load(context.data_dir + "/" + corpus.dictionary);
  const text::TokenizerOptions options{.pipeline = pipeline, .dictionary = dictionary};
  if (corpus.add_words == 0) return {made, options};
  text::WordVocabularyBuilder words({made, {}}, dictionary);
  data::DocumentReader(inputs(context, corpus)).read([&](const data::DocumentPart& piece) { words.add(piece.text); });
  return {words.build(corpus.add_words, /*min_frequency=*/2).vocabulary, options};
}

void make(const Context& context, const Corpus& corpus, const std::string& directory, const std::string& data_dir) {
  if (context.note) context.note(fmt::format("preparing {}", directory));
  const std::string model_dir = directory + "/vocabulary";
  fs::create_directories(model_dir);
  tokenizer(context, corpus).save(model_dir);
  if (!corpus.dictionary.empty()) {  // where prepare looks for it
    fs::copy_file(context.data_dir + "/" + corpus.dictionary, model_dir + "/dict.txt",
                  fs::copy_options::overwrite_existing);
  }
  data::prepare({.input = inputs(context, corpus),
                 .model_dir = model_dir,
                 .words = corpus.dictionary.empty() ? data::WordRule::kTokenizer : data::WordRule::kJieba,
                 .output_dir = data_dir,
                 .valid_fraction = corpus.valid_fraction},
                context.progress);
}

}  // namespace

std::string prepared(const Context& context, const Corpus& corpus) {
  const std::string directory = fmt::format("{}/corpus/{}", context.shared_dir, corpus.name);
  const std::string mark = directory + "/corpus.json", data_dir = directory + "/data";
  const nlohmann::json made_of = {{"corpus", corpus}, {"data", identity_of(context.data_dir, corpus.all_files())}};
  const auto is_made = [&] { return fs::exists(mark) && io::read_json(mark) == made_of; };
  if (is_made()) return data_dir;
  share(context, "corpus", {corpus.name}, [&](size_t) {
    if (is_made()) return 0;
    make(context, corpus, directory, data_dir);
    io::write_file(mark, made_of.dump(2) + "\n");
    return 0;
  });
  return data_dir;
}

Files Corpus::all_files() const {
  Files all = files;
  if (named_tokens(*this) && !is_bytes(*this)) all.push_back(*named_tokens(*this));
  if (!dictionary.empty()) all.push_back(dictionary);
  return all;
}

void to_json(nlohmann::json& json, const Corpus& corpus) {
  json = {{"name", corpus.name}, {"files", corpus.files}, {"valid_fraction", corpus.valid_fraction}};
  std::visit([&](const auto& tokens) { json["tokens"] = tokens; }, corpus.tokens);
  if (!corpus.documents.empty()) json["documents"] = corpus.documents;
  if (!corpus.field.empty()) json["field"] = corpus.field;
  if (!corpus.dictionary.empty()) json["dictionary"] = corpus.dictionary;
  if (!corpus.pipeline.empty()) json["pipeline"] = corpus.pipeline;
  if (corpus.add_words > 0) json["add_words"] = corpus.add_words;
}

Corpus book_corpus(Scale scale) {
  switch (scale) {
    case Scale::kTiny:
      return {.name = "books", .files = {"en_books/books_valid.jsonl"}, .tokens = 4096, .valid_fraction = 0.25};
    case Scale::kSmall:
      return {.name = "books",
              .files = {"en_books/books_train.jsonl", "en_books/books_valid.jsonl"},
              .tokens = 4096,
              .valid_fraction = 0.05};
    default:  // BookCorpus and Wikipedia, 8 parts to 2
      return {.name = "pretraining",
              .files = {"en_pretraining/train.jsonl"},
              .tokens = "vocabs/bert_base_uncased_vocab.txt",
              .valid_fraction = 0.2};
  }
}

Corpus law_corpus(Scale scale) {
  switch (scale) {
    case Scale::kTiny:
      return {.name = "laws", .files = {"zh_laws/laws_valid.jsonl"}, .tokens = 8000, .valid_fraction = 0.25};
    case Scale::kSmall:
      return {.name = "laws",
              .files = {"zh_laws/laws_train.jsonl", "zh_laws/laws_valid.jsonl"},
              .tokens = 8000,
              .valid_fraction = 0.02};
    default:
      return {.name = "chinese",
              .files = {"zh_pretraining/train.jsonl"},
              .tokens = "vocabs/bert_base_chinese_vocab.txt",
              .valid_fraction = 0.001};
  }
}

Corpus byte_corpus(Scale scale) {
  return {.name = "bytes",
          .files = {scale == Scale::kPaper ? "enwik8/enwik8.txt" : "enwiki_xml/enwiki_head.xml"},
          .tokens = "bytes",
          .valid_fraction = 0.05,
          .documents = "blank-line"};
}

}  // namespace rf::reproduce
