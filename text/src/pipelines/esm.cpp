// `transformers`' EsmTokenizer: the tokens of the vocabulary wherever they are in the text, the longest first; what is
// between them is parted at white space, and unknown.
#include <memory>

#include "pipelines/pipeline.h"
#include "rf/io/utf8.h"

namespace rf::text {
namespace {

// What str.split() of Python parts at.
bool is_python_space(char32_t code) { return is_white_space(code) || (code >= 0x1C && code <= 0x1F); }

class EsmSplitter : public Splitter {
 public:
  explicit EsmSplitter(const PieceTrie& vocabulary) : vocabulary_(vocabulary) {}
  int64_t split(std::string_view text, WordSink& sink) override {
    check_text_size(text);
    int64_t replaced = 0;
    size_t begin = 0;  // of what no token has matched
    int32_t characters = 0, begin_character = 0;
    const auto take = [&](size_t end, int32_t id) {
      if (begin == end) return;
      Word word = plain_word(text.substr(begin, end - begin), characters - begin_character, static_cast<int32_t>(begin),
                             begin_character);
      word.token = id;
      sink.take(word);
    };
    for (size_t at = 0; at < text.size() && !sink.is_full();) {
      const PieceTrie::Match match = vocabulary_.longest(text.substr(at), PieceTrie::kWordStart);
      const Decoded decoded = decode_utf8(text.substr(at));
      const bool is_token = match.id >= 0, is_space = is_python_space(decoded.code);
      if (is_token || is_space) {
        take(at, -1);
        begin = at;
        begin_character = characters;
      }
      const auto length = is_token ? match.length : static_cast<size_t>(decoded.length);
      characters += is_token ? count_characters(text.substr(at, length)) : 1;
      at += length;
      if (!is_token && !decoded.valid) ++replaced;
      if (is_token) take(at, match.id);
      if (is_token || is_space) {
        begin = at;
        begin_character = characters;
      }
    }
    take(text.size(), -1);
    return replaced;
  }

 private:
  const PieceTrie& vocabulary_;
};

// Without an end token there are no pairs.
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
