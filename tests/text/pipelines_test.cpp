// What holds for every line of the table of pipelines.
#include <filesystem>

#include "support.h"

namespace rf::text {
namespace {

Tokenizer tokenizer(Pipeline pipeline, Case letter_case, const Directory& dir) {
  if (!pipeline.has_word_pieces()) return byte_tokenizer();
  TokenizerOptions options{.pipeline = pipeline, .letter_case = letter_case};
  if (pipeline.segments_words()) {
    options.dictionary = Dictionary::load(dir.write("words.txt", "今天 15960\n天气 2657\n好 92543\n"), {}, {""});
  }
  return {Vocabulary(specials_and({"今", "天", "天气", "hel", "##lo", ","})), options};
}

TEST(Pipelines, AreFoundByTheirNames) {
  const std::string message = error_of([] { pipeline_of_name("Bert"); });
  expect_has(message, "[tokenizer] pipeline must be bert, bert-legacy, roformer, wobert");
  for (const Pipeline pipeline : all_pipelines()) {
    EXPECT_TRUE(pipeline_of_name(name(pipeline)) == pipeline) << name(pipeline);
    expect_has(message, std::string(name(pipeline)));
  }
}

TEST(Pipelines, AreLoadedAsTheyWereSaved) {
  for (size_t i = 0; i < 2 * all_pipelines().size(); ++i) {
    const Pipeline pipeline = all_pipelines()[i / 2];
    SCOPED_TRACE(name(pipeline));
    const Directory dir;
    const Tokenizer made = tokenizer(pipeline, i % 2 == 0 ? Case::kLower : Case::kKeep, dir);
    made.save(dir.path());
    for (const std::string& file : made.saved_files()) EXPECT_TRUE(std::filesystem::exists(dir.path() + "/" + file));
    const Tokenizer loaded = Tokenizer::load(dir.path());
    EXPECT_TRUE(loaded.options().pipeline == pipeline);
    EXPECT_EQ(loaded.vocabulary().hash(), made.vocabulary().hash());
    for (const char* text : {"Hello, 今天天气", "[MASK] é hello"}) {
      const Encoding expected = made.encode_with_specials(text), got = loaded.encode_with_specials(text);
      EXPECT_EQ(got.ids, expected.ids);
      EXPECT_EQ(got.char_end, expected.char_end);
    }
  }
}

}  // namespace
}  // namespace rf::text
