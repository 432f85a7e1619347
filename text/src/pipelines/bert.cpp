// transformers' BertTokenizer, on the library `tokenizers` (spec R-TOK-04).
#include <memory>

#include "added_tokens/sections.h"
#include "pipelines/pipeline.h"
#include "splitters/bert_normalized_text.h"
#include "splitters/bert_splitter.h"

namespace rf::text {
namespace {

constexpr size_t kNormalizedStretchBytes = size_t{1} << 14;  // at least

BertSplitterOptions bert_options(const TokenizerOptions& options) {
  return {options.letter_case == Case::kLower, strips_accents(options), options.tokenize_chinese_chars,
          options.max_word_chars};
}

std::string normalize(const TokenizerOptions& options, std::string_view text) {
  BertNormalizedText normalized(bert_options(options));
  normalized.normalize(text, 0, 0);
  return normalized.text();
}

void encode_normalized(const AddedTokens& added, const TokenizerOptions& options, std::string_view text,
                       PieceWriter& writer, Encoding& out) {
  BertNormalizedText normalized(bert_options(options));
  const auto encode_stretch = [&](std::string_view stretch, int32_t byte, int32_t character) {
    out.replaced_bytes += normalized.normalize(stretch, byte, character);
    writer.set_origin(0, 0);
    Section section{};
    AddedTokenMatcher::Scan scan(added.normalized(), normalized.text());
    while (!writer.is_full() && scan.next(section)) {
      if (section.token == nullptr) {
        normalized.split(section.begin, section.end, writer);
      } else {
        writer.take_added(section.token->id, normalized.source(section.begin, section.end));
      }
    }
  };
  for_each_section(
      added.raw(), text,
      [&](std::string_view part, int32_t byte, int32_t character) {
        CharacterCounter characters(part);
        for (size_t begin = 0; begin < part.size() && !writer.is_full();) {
          const size_t end = added.may_divide() ? next_separator(part, begin + kNormalizedStretchBytes) : part.size();
          encode_stretch(part.substr(begin, end - begin), byte + static_cast<int32_t>(begin),
                         character + characters.before(begin));
          begin = end;
        }
      },
      [&](const FoundToken& found) { writer.take_added(found.id, found.place); }, [&] { return writer.is_full(); });
}

}  // namespace

namespace pipelines {

const PipelineEntry& bert() {
  static const PipelineEntry entry = {
      .name = "bert",
      .classes = {{.name = "BertTokenizer",
                   .other_names = {"DistilBertTokenizer", "ElectraTokenizer", "MobileBertTokenizer"},
                   .model_type = "bert"}},
      .saved_class = "BertTokenizer",
      .make_splitter =
          [](const TokenizerOptions& options, const Vocabulary&, const PieceTrie&) {
            return SplitterPtr(std::make_unique<BertSplitter>(bert_options(options)));
          },
      .normalize = normalize,
      .encode_normalized = encode_normalized};
  return entry;
}

}  // namespace pipelines
}  // namespace rf::text
