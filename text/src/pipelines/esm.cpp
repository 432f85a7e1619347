// `transformers`' EsmTokenizer: the tokens of the vocabulary wherever they are in the text, the longest first. The
// text between them is split at white space, and unknown.
#include <memory>

#include "chat_template/strings.h"
#include "pipelines/pipeline.h"
#include "rf/io/utf8.h"

namespace rf::text {
namespace {

class EsmSplitter : public Splitter {
 public:
  explicit EsmSplitter(const PieceTrie& vocabulary) : vocabulary_(vocabulary) {}
  int64_t split(std::string_view text, WordSink& sink) override {
    check_text_size(text);
    int64_t replaced = 0;
    size_t begin = 0, at = 0;  // begin and end of the text that has not been taken
    int32_t begin_character = 0, characters = 0;
    const auto skip = [&] {
      begin = at;
      begin_character = characters;
    };
    const auto take = [&](int32_t id) {
      if (begin == at) return;
      Word word = plain_word(text.substr(begin, at - begin), characters - begin_character, static_cast<int32_t>(begin),
                             begin_character);
      word.token = id;
      sink.take(word);
      skip();
    };
    while (at < text.size() && !sink.is_full()) {
      if (const auto match = vocabulary_.longest(text.substr(at), PieceTrie::kWordStart); match.id >= 0) {
        take(-1);
        characters += count_characters(text.substr(at, match.length));
        at += match.length;
        take(match.id);
        continue;
      }
      const Decoded decoded = decode_utf8(text.substr(at));
      const bool is_separator = chat::is_space(decoded.code);
      if (is_separator) take(-1);
      at += static_cast<size_t>(decoded.length);
      ++characters;
      if (!decoded.valid) ++replaced;
      if (is_separator) skip();
    }
    take(-1);
    return replaced;
  }

 private:
  const PieceTrie& vocabulary_;
};

// Pairs need an end token.
SequenceTemplate esm_template(int32_t cls, int32_t eos) {
  SequenceTemplate frame = bert_template(cls, eos);
  for (SequenceTemplate::Piece& piece : frame.pair) piece.type = 0;
  if (eos < 0) {
    frame.single.pop_back();
    frame.pair.clear();
  }
  return frame;
}

}  // namespace

namespace pipelines {

const PipelineEntry& esm() {
  static const PipelineEntry entry = {
      .name = "esm",
      .classes = {{.name = "EsmTokenizer",
                   .model_type = "esm",
                   .special = {"<pad>", "<unk>", "<cls>", "", "<mask>", "", "<eos>"},
                   .frame = esm_template,
                   .ends_with_eos = true}},
      .saved_class = "EsmTokenizer",
      .in_tokenizer_json = InTokenizerJson::kNone,
      .make_splitter = [](const TokenizerOptions&, const Vocabulary&, const PieceTrie& trie) -> SplitterPtr {
        return std::make_unique<EsmSplitter>(trie);
      }};
  return entry;
}

}  // namespace pipelines
}  // namespace rf::text
